import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** A producer without retries sends a record every few ms: NoRetries BOOTSTRAP TOPIC SECONDS. */
public class NoRetries {
    public static void main(String[] args) throws Exception {
        Map<String, Object> configs = new TreeMap<>(Map.of(
            "bootstrap.servers", args[0], "retries", 0, "enable.idempotence", false, "acks", "1",
            "linger.ms", 0, "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class));
        AtomicInteger stored = new AtomicInteger();
        ConcurrentSkipListMap<String, Integer> failed = new ConcurrentSkipListMap<>();
        int sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(configs)) {
            producer.partitionsFor(args[1]);
            System.out.println("begun");
            long end = System.nanoTime() + Long.parseLong(args[2]) * 1_000_000_000L;
            for (; System.nanoTime() < end; sent++) {
                producer.send(new ProducerRecord<>(args[1], sent % 4, null, "" + sent), (at, error) -> {
                    if (error == null) stored.incrementAndGet();
                    else failed.merge(error.getClass().getSimpleName(), 1, Integer::sum);
                });
                Thread.sleep(3);
            }
        }
        System.out.println(sent + "\t" + stored + "\t" + failed);
    }
}
