import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Read topics from beginning to end: BOOTSTRAP TOPIC...
 *
 * Prints topic, partition, count of records and SHA-256 of their values in order.
 */
public class ReadAll {
    public static void main(String[] words) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", words[0]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
            List<TopicPartition> places = new ArrayList<>();
            for (String topic : Arrays.copyOfRange(words, 1, words.length))
                for (var info : consumer.partitionsFor(topic)) places.add(new TopicPartition(topic, info.partition()));
            consumer.assign(places);
            consumer.seekToBeginning(places);
            var ends = consumer.endOffsets(places);
            Map<TopicPartition, MessageDigest> digests = new HashMap<>();
            Map<TopicPartition, Long> counts = new HashMap<>();
            for (var place : places) digests.put(place, MessageDigest.getInstance("SHA-256"));
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place)))
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    var place = new TopicPartition(record.topic(), record.partition());
                    digests.get(place).update(record.value());
                    counts.merge(place, 1L, Long::sum);
                }
            for (var place : places)
                System.out.println(String.join("\t", place.topic(), "" + place.partition(),
                    "" + counts.getOrDefault(place, 0L), HexFormat.of().formatHex(digests.get(place).digest())));
        }
    }
}
