import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A KafkaShareConsumer that acknowledges each record by its number, its value, until `count` are done.
 *
 * Of three numbers the first is accepted, the second released at its first delivery and then accepted,
 * the third rejected. The number 0 is renewed before it is accepted.
 */
public class Share {
    static final long PATIENCE = 60_000;

    public static void main(String[] words) throws Exception {
        int count = Integer.parseInt(words[3]);
        var configs = new HashMap<String, Object>(Map.of(
            "bootstrap.servers", words[0], "group.id", words[2],
            "share.acknowledgement.mode", "explicit", "share.acquire.mode", words[4], "max.poll.records", 20));
        var done = new TreeSet<Integer>();
        var errors = new ArrayList<Object>();
        int most = 0;
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> { if (error != null) errors.add(error); });
            consumer.subscribe(List.of(words[1]));
            long end = System.currentTimeMillis() + PATIENCE;
            while (done.size() < count && System.currentTimeMillis() < end) {
                var records = consumer.poll(Duration.ofMillis(500));
                most = Math.max(most, records.count());
                boolean renewed = false;
                for (var record : records) {
                    int number = Integer.parseInt(new String(record.value()));
                    int deliveries = record.deliveryCount().orElse((short) 0);
                    System.out.println("got\t" + number + "\t" + deliveries);
                    if (number == 0) {
                        consumer.acknowledge(record, AcknowledgeType.RENEW);
                        renewed = true;
                    } else if (number % 3 == 1 && deliveries == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        consumer.acknowledge(record, number % 3 == 2 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                        done.add(number);
                    }
                }
                if (renewed) {
                    consumer.commitSync(Duration.ofSeconds(10));
                    for (var record : consumer.poll(Duration.ofMillis(500))) {
                        System.out.println("renewed\t" + new String(record.value()) + "\t" + record.deliveryCount().orElse((short) 0));
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        done.add(Integer.parseInt(new String(record.value())));
                    }
                }
                for (var failed : consumer.commitSync(Duration.ofSeconds(10)).values()) failed.ifPresent(errors::add);
            }
        }
        System.out.println("end\t" + done.size() + "\t" + errors + "\t" + consumerLimit(most));
    }

    static String consumerLimit(int most) {
        return most <= 20 ? "within" : "" + most;
    }
}
