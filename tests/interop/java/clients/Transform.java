import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A consume-transform-produce application of the Java client, at its default settings.
 *
 * ADDRESS NAME FROM TO [SETTING=VALUE...] copies FROM to TO in transactions that include the offsets of group
 * NAME, until it is killed. Any error ends it, and the test restarts it. The settings are the consumer's, for a
 * shorter test.
 */
public class Transform {
    public static void main(String[] words) {
        Map<String, Object> reading = new HashMap<>(Map.of(
            "bootstrap.servers", words[0], "group.id", words[1], "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "isolation.level", "read_committed", "max.poll.records", 15));
        for (String pair : Arrays.copyOfRange(words, 4, words.length)) reading.put(pair.split("=")[0], pair.split("=")[1]);
        Map<String, Object> writing = Map.of("bootstrap.servers", words[0], "transactional.id", words[1]);
        try (var source = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             var sink = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            sink.initTransactions();
            source.subscribe(List.of(words[2]));
            while (true) {
                var records = source.poll(Duration.ofMillis(300));
                if (records.isEmpty()) continue;
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(records.nextOffsets());
                sink.beginTransaction();
                for (var record : records) sink.send(new ProducerRecord<>(words[3], record.partition() % 2, null, record.value()));
                sink.sendOffsetsToTransaction(offsets, source.groupMetadata());
                sink.commitTransaction();
            }
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
