import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.converters.BinaryDataConverter;
import io.debezium.data.Envelope;
import io.debezium.time.*;
import io.debezium.transforms.outbox.EventRouter;
import java.io.*;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.*;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.temporal.ChronoField;
import java.time.temporal.ChronoUnit;
import java.util.*;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.header.*;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.*;

// Runs Debezium's Outbox Event Router and Kafka Connect's converters on what it
// reads from its input, one JSON object a line, and answers each with one line.
public class Router {
    static final ObjectMapper JSON = new ObjectMapper();
    static final DateTimeFormatter PRINTED = new DateTimeFormatterBuilder().appendPattern("yyyy-MM-dd HH:mm:ss")
            .optionalStart().appendFraction(ChronoField.NANO_OF_SECOND, 1, 6, true).optionalEnd().toFormatter();

    static EventRouter<SourceRecord> router;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Throwable t) {
                answer.removeAll();
                answer.put("error", t.getClass().getSimpleName() + ": " + t.getMessage());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        out.flush();
    }

    static void answer(JsonNode in, ObjectNode answer) throws Exception {
        Map<String, String> options = new HashMap<>();
        in.get("options").fields().forEachRemaining(e -> options.put(e.getKey(), e.getValue().asText()));
        if (!in.get("again").asBoolean()) {
            router = new EventRouter<>();
            router.configure(options);
        }
        SourceRecord r = router.apply(record(in));
        if (r == null) {
            answer.put("dropped", true);
            return;
        }
        answer.put("topic", r.topic());
        if (r.kafkaPartition() != null) answer.put("partition", r.kafkaPartition());
        answer.put("timestamp", r.timestamp());
        Converter key = converter(in.get("key").asText(), true), value = converter(in.get("value").asText(), false);
        answer.put("key", key.fromConnectData(r.topic(), r.keySchema(), r.key()));
        answer.put("value", value.fromConnectData(r.topic(), r.valueSchema(), r.value()));
        HeaderConverter header = headers(in.get("header").asText());
        ArrayNode all = answer.putArray("headers");
        for (Header h : r.headers()) {
            ObjectNode one = all.addObject();
            one.put("name", h.key());
            one.put("value", header.fromConnectHeader(r.topic(), h.key(), h.schema(), h.value()));
        }
    }

    static Converter converter(String kind, boolean key) {
        Converter c = switch (kind) {
            case "json", "json-schema" -> new JsonConverter();
            case "string" -> new StringConverter();
            case "bytes" -> new org.apache.kafka.connect.converters.ByteArrayConverter();
            case "binary" -> new BinaryDataConverter();
            default -> throw new IllegalArgumentException(kind);
        };
        c.configure(Map.of("schemas.enable", kind.equals("json-schema")), key);
        return c;
    }

    static HeaderConverter headers(String kind) {
        if (kind.equals("simple")) {
            SimpleHeaderConverter c = new SimpleHeaderConverter();
            c.configure(Map.of());
            return c;
        }
        JsonConverter c = new JsonConverter();
        c.configure(Map.of("schemas.enable", kind.equals("json-schema"), "converter.type", "header"));
        return c;
    }

    static SourceRecord record(JsonNode in) {
        String schema = in.get("schema").asText(), table = in.get("table").asText(), name = "srv." + schema + "." + table;
        SchemaBuilder row = SchemaBuilder.struct().name(name + ".Value").optional();
        for (JsonNode c : in.get("columns")) row.field(c.get("name").asText(), type(c));
        Schema rows = row.build();
        Schema src = SchemaBuilder.struct().name("src").field("connector", Schema.STRING_SCHEMA).build();
        Envelope env = Envelope.defineSchema().withName(name + ".Envelope").withRecord(rows).withSource(src).build();
        Struct after = new Struct(rows);
        for (JsonNode c : in.get("columns")) after.put(c.get("name").asText(), value(c));
        Struct value = env.create(after, new Struct(src).put("connector", "postgresql"), Instant.ofEpochMilli(in.get("at").asLong()));
        Schema keys = SchemaBuilder.struct().name(name + ".Key").field("id", Schema.STRING_SCHEMA).build();
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode h : in.get("context")) headers.add(h.get(0).asText(), h.get(1).asText(), Schema.STRING_SCHEMA);
        return new SourceRecord(Map.of(), Map.of(), name, null, keys, new Struct(keys).put("id", "x"), env.schema(), value, null, headers);
    }

    // What Debezium's connectors make of a column's type, with their default settings.
    static Schema type(JsonNode c) {
        String[] t = c.get("type").asText().split(":");
        SchemaBuilder b = switch (t[0]) {
            case "string" -> SchemaBuilder.string();
            case "int16" -> SchemaBuilder.int16();
            case "int32" -> SchemaBuilder.int32();
            case "int64" -> SchemaBuilder.int64();
            case "float32" -> SchemaBuilder.float32();
            case "float64" -> SchemaBuilder.float64();
            case "boolean" -> SchemaBuilder.bool();
            case "bytes" -> SchemaBuilder.bytes();
            case "json" -> io.debezium.data.Json.builder();
            case "uuid" -> io.debezium.data.Uuid.builder();
            case "decimal" -> org.apache.kafka.connect.data.Decimal.builder(Integer.parseInt(t[2])).parameter("connect.decimal.precision", t[1]);
            case "date" -> io.debezium.time.Date.builder();
            case "time" -> MicroTime.builder();
            case "timestamp" -> io.debezium.time.Timestamp.builder();
            case "microtimestamp" -> MicroTimestamp.builder();
            case "zoned" -> ZonedTimestamp.builder();
            default -> throw new IllegalArgumentException(t[0]);
        };
        return (c.get("notNull").asBoolean() ? b.required() : b.optional()).build();
    }

    static Object value(JsonNode c) {
        if (c.get("value") == null || c.get("value").isNull()) return null;
        byte[] raw = Base64.getDecoder().decode(c.get("value").asText());
        String text = new String(raw, StandardCharsets.UTF_8);
        String[] t = c.get("type").asText().split(":");
        return switch (t[0]) {
            case "int16" -> Short.valueOf(text);
            case "int32" -> Integer.valueOf(text);
            case "int64" -> Long.valueOf(text);
            case "float32" -> Float.valueOf(text);
            case "float64" -> Double.valueOf(text);
            case "boolean" -> text.equals("t");
            case "bytes" -> ByteBuffer.wrap(raw);
            case "decimal" -> new BigDecimal(text);
            case "date" -> (int) LocalDate.parse(text).toEpochDay();
            case "time" -> LocalTime.parse(text).toNanoOfDay() / 1000;
            case "timestamp" -> utc(text).toInstant().toEpochMilli();
            case "microtimestamp" -> ChronoUnit.MICROS.between(Instant.EPOCH, utc(text).toInstant());
            case "zoned" -> ZonedTimestamp.toIsoString(utc(text.replace("+00", "")), null, 6);
            default -> text;
        };
    }

    static ZonedDateTime utc(String text) { return LocalDateTime.parse(text, PRINTED).atZone(ZoneOffset.UTC); }
}
