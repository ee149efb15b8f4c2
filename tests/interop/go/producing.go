package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/google/uuid"
)

type produceArgs struct {
	Producer  string `json:"producer"`
	Namesrv   string `json:"namesrv"`
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Count     int    `json:"count"`
	BodyBytes int    `json:"body_bytes"`
	Tags      string `json:"tags"`
	Keys      string `json:"keys"`

	CompressAboveBytes int    `json:"compress_above_bytes"`
	TemplateTopic      string `json:"template_topic"`
	Retries            *int   `json:"retries"`
	TraceTopic         string `json:"trace_topic"`
}

type sent struct {
	MessageIDs []string `json:"message_ids"`
	QueueIDs   []int    `json:"queue_ids"`
	Statuses   []string `json:"statuses"`
}

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

// Producers that live on between requests, by the name the test gave them.
var open sync.Map

func produce(raw json.RawMessage) (any, error) {
	var args produceArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	started, err := startedProducer(args)
	if err != nil {
		return nil, err
	}
	defer started.Shutdown()
	return send(started, args)
}

func openProducer(raw json.RawMessage) (any, error) {
	var args produceArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	started, err := startedProducer(args)
	if err != nil {
		return nil, err
	}
	open.Store(args.Producer, started)
	return struct{}{}, nil
}

func sendWithOpen(raw json.RawMessage) (any, error) {
	var args produceArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	kept, ok := open.Load(args.Producer)
	if !ok {
		return nil, fmt.Errorf("no open producer %q", args.Producer)
	}
	return send(kept.(rocketmq.Producer), args)
}

func closeProducer(raw json.RawMessage) (any, error) {
	var args produceArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	kept, ok := open.LoadAndDelete(args.Producer)
	if !ok {
		return nil, fmt.Errorf("no open producer %q", args.Producer)
	}
	return struct{}{}, kept.(interface{ Shutdown() error }).Shutdown()
}

func startedProducer(args produceArgs) (rocketmq.Producer, error) {
	retries := 2
	if args.Retries != nil {
		retries = *args.Retries
	}
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(args.Namesrv, ";"))),
		producer.WithGroupName(args.Group),
		producer.WithInstanceName(uuid.NewString()),
		producer.WithRetry(retries),
		producer.WithQueueSelector(chosenQueue{
			byKey:  producer.NewHashQueueSelector(),
			inTurn: producer.NewRoundRobinQueueSelector(),
		}),
	}
	if args.CompressAboveBytes > 0 {
		options = append(options, producer.WithCompressMsgBodyOverHowmuch(args.CompressAboveBytes))
	}
	if args.TemplateTopic != "" {
		options = append(options, producer.WithCreateTopicKey(args.TemplateTopic))
	}
	if args.TraceTopic != "" {
		options = append(options, producer.WithTrace(traceConfig(args.TraceTopic, args.Namesrv)))
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func traceConfig(topic string, namesrv string) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		TraceTopic: topic,
		Access:     primitive.Local,
		Resolver:   primitive.NewPassthroughResolver(strings.Split(namesrv, ";")),
	}
}

func send(through rocketmq.Producer, args produceArgs) (any, error) {
	done := sent{MessageIDs: []string{}, QueueIDs: []int{}, Statuses: []string{}}
	for number := 0; number < args.Count; number++ {
		result, err := through.SendSync(context.Background(), message(args, number))
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", number, err)
		}
		done.MessageIDs = append(done.MessageIDs, result.MsgID)
		done.QueueIDs = append(done.QueueIDs, result.MessageQueue.QueueId)
		done.Statuses = append(done.Statuses, statuses[result.Status])
	}
	return done, nil
}

func message(args produceArgs, number int) *primitive.Message {
	body := fmt.Sprintf("message %d", number)
	if missing := args.BodyBytes - len(body); missing > 0 {
		body += strings.Repeat(".", missing)
	}
	made := primitive.NewMessage(args.Topic, []byte(body))
	if args.Tags != "" {
		made.WithTag(args.Tags)
	}
	if args.Keys != "" {
		made.WithKeys([]string{fmt.Sprintf("%s%d", args.Keys, number)})
	}
	return made
}
