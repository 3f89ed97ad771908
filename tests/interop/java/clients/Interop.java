import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client at its default settings, driven by words and lines.
 *
 * A record is one line: key, value, timestamp and headers (name=value, joined by commas), all but the
 * timestamp in hexadecimal, "-" for null, parts joined by "|". What happened is printed the same way.
 */
public class Interop {
    static final Duration POLL = Duration.ofMillis(200);
    static final long PATIENCE = 30_000;
    static String bootstrap;

    public static void main(String[] words) throws Exception {
        bootstrap = words[1];
        String[] rest = Arrays.copyOfRange(words, 2, words.length);
        switch (words[0]) {
            case "roundtrip" -> roundtrip(rest);
            case "admin" -> admin(rest[0]);
            case "group" -> group(rest[0], rest[1], rest[2]);
            case "transactions" -> transactions(rest[0], rest[1], rest[2]);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** Each TOPIC=CODEC gets all records of standard input, and is read back. */
    static void roundtrip(String[] topics) throws Exception {
        List<String> lines = new BufferedReader(new InputStreamReader(System.in)).lines().toList();
        for (String pair : topics) {
            String topic = pair.split("=")[0];
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (var producer = producer(Map.of("compression.type", pair.split("=")[1]))) {
                for (String line : lines) sent.add(producer.send(parse(topic, line)));
                for (var future : sent) say("sent", topic, future.get().offset());
            }
            try (var consumer = consumer(Map.of())) {
                var place = new TopicPartition(topic, 0);
                consumer.assign(List.of(place));
                consumer.seekToBeginning(List.of(place));
                for (var record : take(consumer, lines.size())) say("read", topic, record.offset(), format(record));
                say("end", topic, consumer.endOffsets(List.of(place)).get(place));
            }
        }
    }

    /** Creates, describes and deletes a topic, and describes the cluster. */
    static void admin(String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var made = admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "86400000"))));
            say("created", made.numPartitions(topic).get(), made.topicId(topic).get());
            var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            say("described", described.partitions().size(), described.topicId());
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            say("retention", config(admin, resource, "retention.ms"));
            var change = new AlterConfigOp(new ConfigEntry("retention.ms", "1000000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            say("retention", config(admin, resource, "retention.ms"));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            say("partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            try (var producer = producer(Map.of())) {
                for (int n = 0; n < 4; n++) producer.send(new ProducerRecord<>(topic, 0, null, new byte[1])).get();
            }
            var place = new TopicPartition(topic, 0);
            long end = admin.listOffsets(Map.of(place, OffsetSpec.latest())).partitionResult(place).get().offset();
            long low = admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(end))).lowWatermarks().get(place).get().lowWatermark();
            long start = admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get().offset();
            say("trimmed", low == end, start == end);
            say("nodes", admin.describeCluster().nodes().get().size());
            say("features", admin.describeFeatures().featureMetadata().get() != null);
            var node = admin.describeCluster().nodes().get().iterator().next().id();
            say("log dirs", admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).size());
            say("listed", admin.listTopics().names().get().contains(topic));
            say("groups", admin.listGroups().all().get() != null);
            admin.deleteTopics(List.of(topic)).all().get();
            say("deleted", topic);
        }
    }

    /** Two consumers of one group read everything in a topic and commit it. */
    static void group(String topic, String group, String protocol) throws Exception {
        int count;
        try (var one = consumer(Map.of("group.id", group, "group.protocol", protocol));
             var two = consumer(Map.of("group.id", group, "group.protocol", protocol))) {
            one.subscribe(List.of(topic));
            two.subscribe(List.of(topic));
            Set<String> seen = new TreeSet<>();
            long deadline = System.currentTimeMillis() + PATIENCE;
            int partitions = one.partitionsFor(topic).size();
            long stored = one.endOffsets(places(topic, partitions)).values().stream().mapToLong(x -> x).count();
            while (System.currentTimeMillis() < deadline) {
                for (var consumer : List.of(one, two))
                    for (var record : consumer.poll(Duration.ofMillis(50))) seen.add(record.partition() + ":" + record.offset());
                boolean shared = !one.assignment().isEmpty() && !two.assignment().isEmpty()
                    && one.assignment().size() + two.assignment().size() == stored;
                if (shared && caughtUp(one) && caughtUp(two)) break;
            }
            say("shared", one.assignment().size(), two.assignment().size());
            count = seen.size();
            one.commitSync();
            two.commitSync();
        }
        say("seen", count);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            for (var entry : new TreeMap<>(byNumber(committed)).entrySet()) say("committed", entry.getKey(), entry.getValue());
        }
    }

    /** A committed and an aborted transaction that copies `from` to `to` with the offsets of `group`. */
    static void transactions(String from, String to, String group) throws Exception {
        try (var producer = producer(Map.of("transactional.id", to + "-tx"));
             var consumer = consumer(Map.of("group.id", group, "isolation.level", "read_committed"))) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            for (boolean commit : new boolean[] {false, true}) {
                var records = take(consumer, 2);
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (var record : records) {
                    producer.send(new ProducerRecord<>(to, 0, null, record.value()));
                    offsets.put(new TopicPartition(from, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (commit) producer.commitTransaction(); else producer.abortTransaction();
            }
            try (var reader = consumer(Map.of("isolation.level", "read_committed"))) {
                reader.assign(places(to, 1));
                reader.seekToBeginning(places(to, 1));
                for (var record : take(reader, 2)) say("copied", new String(record.value()));
            }
            say("committed", consumer.committed(new HashSet<>(places(from, 1))).get(new TopicPartition(from, 0)) != null);
        }
    }

    static boolean caughtUp(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.endOffsets(consumer.assignment()).entrySet().stream()
            .allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }

    static Map<Integer, Long> byNumber(Map<TopicPartition, OffsetAndMetadata> committed) {
        return committed.entrySet().stream().collect(Collectors.toMap(e -> e.getKey().partition(), e -> e.getValue().offset()));
    }

    static List<TopicPartition> places(String topic, int partitions) {
        List<TopicPartition> places = new ArrayList<>();
        for (int p = 0; p < partitions; p++) places.add(new TopicPartition(topic, p));
        return places;
    }

    static String config(Admin admin, ConfigResource resource, String name) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (found.size() < count && System.currentTimeMillis() < deadline)
            for (var record : consumer.poll(POLL)) found.add(record);
        if (found.size() < count) throw new IllegalStateException(found.size() + " records of " + count);
        return found;
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        settings.putAll(more);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 2));
        if (!"consumer".equals(more.get("group.protocol"))) settings.put("heartbeat.interval.ms", 100);
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static ProducerRecord<byte[], byte[]> parse(String topic, String line) {
        String[] parts = line.split("\\|", -1);
        List<Header> headers = new ArrayList<>();
        if (!parts[3].isEmpty())
            for (String header : parts[3].split(",")) {
                String[] sides = header.split("=", -1);
                headers.add(new RecordHeader(new String(bytes(sides[0]), java.nio.charset.StandardCharsets.UTF_8), bytes(sides[1])));
            }
        return new ProducerRecord<>(topic, 0, Long.valueOf(parts[2]), bytes(parts[0]), bytes(parts[1]), headers);
    }

    static String format(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers())
            headers.add(hex(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)) + "=" + hex(header.value()));
        return String.join("|", hex(record.key()), hex(record.value()), String.valueOf(record.timestamp()), String.join(",", headers));
    }

    static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HexFormat.of().parseHex(hex);
    }

    static String hex(byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }

    static void say(Object... words) {
        System.out.println(Arrays.stream(words).map(String::valueOf).collect(Collectors.joining("\t")));
    }
}
