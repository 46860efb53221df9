import java.io.DataInputStream;
import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Produces a record for each key of a file, each with its length before it, to each topic: Parity BROKERS FILE TOPIC... */
public class Parity {
    public static void main(String[] args) throws Exception {
        List<byte[]> keys = new ArrayList<>();
        try (DataInputStream in = new DataInputStream(new FileInputStream(args[1]))) {
            while (in.available() > 0) {
                keys.add(in.readNBytes(in.readInt()));
            }
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "acks", "all", "linger.ms", "50");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int t = 2; t < args.length; t++) {
                for (byte[] key : keys) {
                    sent.add(producer.send(new ProducerRecord<>(args[t], key, new byte[0])));
                }
            }
            for (Future<RecordMetadata> f : sent) {
                f.get();
            }
        }
    }
}
