import com.sohu.jafka.api.FetchRequest;
import com.sohu.jafka.api.ProducerRequest;
import com.sohu.jafka.consumer.Consumer;
import com.sohu.jafka.consumer.ConsumerConfig;
import com.sohu.jafka.consumer.ConsumerConnector;
import com.sohu.jafka.consumer.MessageStream;
import com.sohu.jafka.consumer.SimpleConsumer;
import com.sohu.jafka.message.ByteBufferMessageSet;
import com.sohu.jafka.message.CompressionCodec;
import com.sohu.jafka.message.Message;
import com.sohu.jafka.message.MessageAndOffset;
import com.sohu.jafka.producer.Producer;
import com.sohu.jafka.producer.ProducerConfig;
import com.sohu.jafka.producer.StringProducerData;
import com.sohu.jafka.producer.SyncProducer;
import com.sohu.jafka.producer.SyncProducerConfig;
import com.sohu.jafka.producer.serializer.StringDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** Kafka 0.7's client as the tests drive it: one word says what to do, tabs separate the answers. */
public class Old07 {
    public static void main(String[] words) throws Exception {
        String[] rest = Arrays.copyOfRange(words, 1, words.length);
        switch (words[0]) {
            case "sync": sync(rest); break;
            case "multi": multi(rest); break;
            case "send": send(rest); break;
            case "fetch": fetch(rest); break;
            case "multifetch": multifetch(rest); break;
            case "offsets": offsets(rest); break;
            case "group": group(rest); break;
            default: throw new IllegalArgumentException(words[0]);
        }
        System.out.flush();
        System.exit(0);
    }

    static ByteBufferMessageSet set(int codec, String[] values, int from) {
        List<Message> messages = new ArrayList<Message>();
        for (int i = from; i < values.length; i++) {
            messages.add(new Message(values[i].getBytes(StandardCharsets.UTF_8)));
        }
        return new ByteBufferMessageSet(
            CompressionCodec.valueOf(codec), messages.toArray(new Message[0]));
    }

    static SyncProducer producer(String host, String port) {
        Properties properties = new Properties();
        properties.put("host", host);
        properties.put("port", port);
        return new SyncProducer(new SyncProducerConfig(properties));
    }

    /** HOST PORT TOPIC PARTITION CODEC VALUE...: one PRODUCE. */
    static void sync(String[] w) throws Exception {
        SyncProducer producer = producer(w[0], w[1]);
        producer.send(w[2], Integer.parseInt(w[3]), set(Integer.parseInt(w[4]), w, 5));
        producer.close();
    }

    /** HOST PORT CODEC TOPIC VALUE TOPIC VALUE...: one MULTIPRODUCE. */
    static void multi(String[] w) throws Exception {
        SyncProducer producer = producer(w[0], w[1]);
        List<ProducerRequest> requests = new ArrayList<ProducerRequest>();
        for (int i = 3; i < w.length; i += 2) {
            String[] one = {w[i + 1]};
            requests.add(new ProducerRequest(w[i], 0, set(Integer.parseInt(w[2]), one, 0)));
        }
        producer.multiSend(requests);
        producer.close();
    }

    /** NAME VALUE TOPIC CODEC VALUE...: the high-level producer; NAME is broker.list or zk.connect. */
    static void send(String[] w) throws Exception {
        Properties properties = new Properties();
        properties.put(w[0], w[1]);
        properties.put("serializer.class", "com.sohu.jafka.producer.serializer.StringEncoder");
        properties.put("compression.codec", w[3]);
        Producer<String, String> producer =
            new Producer<String, String>(new ProducerConfig(properties));
        for (int i = 4; i < w.length; i++) {
            producer.send(new StringProducerData(w[2], w[i]));
            Thread.sleep(20);
        }
        producer.close();
    }

    static String text(Message message) {
        ByteBuffer payload = message.payload();
        byte[] bytes = new byte[payload.remaining()];
        payload.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** HOST PORT TOPIC PARTITION OFFSET SIZE: every message from there on, with the next offset. */
    static void fetch(String[] w) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(w[0], Integer.parseInt(w[1]));
        long offset = Long.parseLong(w[4]);
        while (true) {
            boolean any = false;
            for (MessageAndOffset found : consumer.fetch(
                    new FetchRequest(w[2], Integer.parseInt(w[3]), offset, Integer.parseInt(w[5])))) {
                System.out.println(found.offset + "\t" + text(found.message));
                offset = found.offset;
                any = true;
            }
            if (!any) {
                break;
            }
        }
        consumer.close();
    }

    /** HOST PORT TOPIC...: the first messages of each, in one MULTIFETCH. */
    static void multifetch(String[] w) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(w[0], Integer.parseInt(w[1]));
        List<FetchRequest> requests = new ArrayList<FetchRequest>();
        for (int i = 2; i < w.length; i++) {
            requests.add(new FetchRequest(w[i], 0, 0, 100000));
        }
        int i = 2;
        for (ByteBufferMessageSet set : consumer.multifetch(requests)) {
            for (MessageAndOffset found : set) {
                System.out.println(w[i] + "\t" + text(found.message));
            }
            i++;
        }
        consumer.close();
    }

    /** HOST PORT TOPIC PARTITION TIME MOST */
    static void offsets(String[] w) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(w[0], Integer.parseInt(w[1]));
        for (long offset : consumer.getOffsetsBefore(w[2], Integer.parseInt(w[3]),
                Long.parseLong(w[4]), Integer.parseInt(w[5]))) {
            System.out.println(offset);
        }
        consumer.close();
    }

    /** ZOOKEEPER TOPIC GROUP MILLISECONDS: a high-level consumer until nothing comes for so long. */
    static void group(String[] w) throws Exception {
        Properties properties = new Properties();
        properties.put("zk.connect", w[0]);
        properties.put("groupid", w[2]);
        properties.put("autooffset.reset", "smallest");
        properties.put("consumer.timeout.ms", w[3]);
        properties.put("autocommit.interval.ms", "200");
        properties.put("zk.sessiontimeout.ms", "3000");
        ConsumerConnector connector = Consumer.create(new ConsumerConfig(properties));
        Map<String, List<MessageStream<String>>> streams = connector.createMessageStreams(
            java.util.Collections.singletonMap(w[1], 1), new StringDecoder());
        try {
            for (String value : streams.get(w[1]).get(0)) {
                System.out.println(value);
                System.out.flush();
            }
        } catch (com.sohu.jafka.common.ConsumerTimeoutException done) {
            System.out.flush();
        }
        connector.close();
    }
}
