package kafka

import (
	"fmt"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
)

// api is a request that the sink can't do without: the oldest version that
// has what we need, and the newest that the client speaks.
type api struct {
	key            int16
	name           string
	oldest, newest int16
}

var needed = [...]api{
	{0, "Produce", 3, produceVersion}, // 3: batches with headers and sequences
	{3, "Metadata", 4, 11},            // 4: a question makes no topic
	{22, "InitProducerId", 0, 4},      // copies are told by it
}

// zstdProduce is the first version of Produce that takes zstd.
const zstdProduce = 7

// Brokers don't tell their version. What they do tell is the highest level of
// metadata.version that they know. Tested are 3.9 to 4.4.
const (
	level39 = 21
	level44 = 33
)

// versions is what a broker says it can do.
func versions(b *sarama.Broker) (*sarama.ApiVersionsResponse, error) {
	answer, err := b.ApiVersions(&sarama.ApiVersionsRequest{Version: 3, ClientSoftwareName: kafkaconn.ClientID, ClientSoftwareVersion: "0"})
	if err != nil || answer.ErrorCode == int16(sarama.ErrUnsupportedVersion) { // before 2.4
		answer, err = b.ApiVersions(&sarama.ApiVersionsRequest{})
	}
	if err == nil && answer.ErrorCode != 0 {
		err = sarama.KError(answer.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for API versions: %w", err)
	}
	return answer, nil
}

// suits names what the broker lacks, as a *fault.Error.
func suits(answer *sarama.ApiVersionsResponse, codec sarama.CompressionCodec) error {
	const fix = "Use Kafka 2.1 or later; outboxd is tested with 3.9 to 4.4."
	for _, need := range needed {
		if need.name == "Produce" && codec == sarama.CompressionZSTD {
			need.oldest = zstdProduce
		}
		found := "does not have it"
		for _, has := range answer.ApiKeys {
			if has.ApiKey == need.key {
				found = fmt.Sprintf("has %d to %d", has.MinVersion, has.MaxVersion)
				if has.MaxVersion >= need.oldest && has.MinVersion <= need.newest {
					found = ""
				}
			}
		}
		if found != "" {
			return fault.Config(fault.CodeServerSetting, fix, nil,
				"the broker lacks the API %s in a version from %d to %d: it %s", need.name, need.oldest, need.newest, found)
		}
	}
	return nil
}

// level gives the highest metadata.version the broker knows; ok is false when it
// tells none, as one with ZooKeeper, or of another make.
func level(answer *sarama.ApiVersionsResponse) (highest int16, ok bool) {
	for _, feature := range answer.SupportedFeatures {
		if feature.Name == "metadata.version" {
			return feature.MaxVersion, true
		}
	}
	return 0, false
}

// tested reports whether a level is of a version that outboxd is tested with.
func tested(level int16) bool { return level >= level39 && level <= level44 }

// judgeBroker refuses a broker that lacks something, and warns of one that is not tested.
func judgeBroker(b *sarama.Broker, codec sarama.CompressionCodec, log *zap.Logger) error {
	answer, err := versions(b)
	if err != nil {
		return err
	}
	if err := suits(answer, codec); err != nil {
		return err
	}
	if highest, ok := level(answer); ok && !tested(highest) {
		log.Warn("outboxd is not tested with this version of Kafka; tested are 3.9 to 4.4", zap.Int16("metadata.version", highest))
	}
	return nil
}
