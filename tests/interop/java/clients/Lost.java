import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Read partition 0 from the beginning, without a reset policy: BOOTSTRAP TOPIC.
 *
 * Prints the value of each record. Ends with "lost", the position and the offset at which the log
 * and the records that were read differ.
 */
public class Lost {
    public static void main(String[] words) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", words[0]);
        settings.put("auto.offset.reset", "none");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        var place = new TopicPartition(words[1], 0);
        try (var consumer = new KafkaConsumer<String, String>(settings)) {
            consumer.assign(List.of(place));
            consumer.seek(place, 0);
            while (true)
                for (var record : consumer.poll(Duration.ofMillis(100))) System.out.println(record.value());
        } catch (LogTruncationException error) {
            System.out.println("lost " + error.offsetOutOfRangePartitions().get(place)
                + " " + error.divergentOffsets().get(place).offset());
        }
    }
}
