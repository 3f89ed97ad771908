import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts words as Kafka Streams' examples do: a repartition topic, a store with its changelog, counts by word.
 *
 * ADDRESS APPLICATION FROM TO FOLDER [SETTING=VALUE...] runs until killed. Each change of its state is a line,
 * and so is the number of counting tasks it has whenever it runs.
 */
public class WordCount {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("application.id", words[1]);
        settings.put("state.dir", words[4]);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        for (String pair : Arrays.copyOfRange(words, 5, words.length)) settings.put(pair.split("=")[0], pair.split("=")[1]);
        var builder = new StreamsBuilder();
        builder.<String, String>stream(words[2])
            .flatMapValues(line -> words(line))
            .groupBy((key, word) -> word)
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(words[3]);
        var streams = new KafkaStreams(builder.build(settings), settings);
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            if (now == KafkaStreams.State.RUNNING) System.out.println("counting " + counting(streams));
        });
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            boolean all = String.valueOf(failure.getCause()).contains(FATAL);
            return all ? StreamThreadExceptionResponse.SHUTDOWN_APPLICATION : StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        var known = "";
        while (streams.state() != KafkaStreams.State.ERROR && streams.state() != KafkaStreams.State.NOT_RUNNING) {
            Thread.sleep(100);
            var now = settings.containsKey("application.server") ? hosts(streams) : "";
            if (!now.equals(known)) System.out.println("hosts " + (known = now));
        }
        streams.close(Duration.ofSeconds(10));
        System.exit(1);
    }

    static final String FATAL = "the application shall stop";

    static List<String> words(String line) {
        if (line.equals("!")) throw new IllegalStateException(FATAL);
        return List.of(line.split(" "));
    }

    /** All instances in this one's metadata, and the number of partitions of the repartition topic of each. */
    static String hosts(KafkaStreams streams) {
        return streams.metadataForAllStreamsClients().stream()
            .map(each -> each.host() + ":" + each.port() + "="
                + each.topicPartitions().stream().filter(place -> place.topic().endsWith("-repartition")).count()
                + "+" + each.standbyTopicPartitions().stream().filter(place -> place.topic().endsWith("-repartition")).count())
            .sorted().reduce("", (all, one) -> all + one + " ");
    }

    /** The tasks behind the repartition topic: those with the store. */
    static long counting(KafkaStreams streams) {
        return streams.metadataForLocalThreads().stream()
            .flatMap(thread -> thread.activeTasks().stream())
            .filter(task -> task.taskId().subtopology() == 1)
            .count();
    }
}
