package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/google/uuid"
)

const (
	pollTimeout  = 100 * time.Millisecond
	waitInterval = 20 * time.Millisecond
)

type consumerArgs struct {
	Consumer    string `json:"consumer"`
	Kind        string `json:"kind"`
	Namesrv     string `json:"namesrv"`
	Group       string `json:"group"`
	Topic       string `json:"topic"`
	Expression  string `json:"expression"`
	SQL         string `json:"sql"`
	Start       string `json:"start"`
	StartTime   string `json:"start_time"`
	Broadcast   bool   `json:"broadcast"`
	AttemptsMax int32  `json:"attempts_max"`
	Failures    int32  `json:"failures"`
	Count       int    `json:"count"`
	TimeoutMs   int    `json:"timeout_ms"`
	TraceTopic  string `json:"trace_topic"`
}

// keptConsumer lives on between requests and keeps what it receives.
type keptConsumer struct {
	keeping  sync.Mutex
	messages []received
	failures int32
	shutdown func() error
}

var openConsumers sync.Map

var starts = map[string]consumer.ConsumeFromWhere{
	"CONSUME_FROM_FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
	"CONSUME_FROM_LAST_OFFSET":  consumer.ConsumeFromLastOffset,
	"CONSUME_FROM_TIMESTAMP":    consumer.ConsumeFromTimestamp,
}

func openConsumer(raw json.RawMessage) (any, error) {
	var args consumerArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	kept := &keptConsumer{messages: []received{}, failures: args.Failures}
	open := kept.openPush
	if args.Kind == "lite" {
		open = kept.openPull
	}
	if err := open(args); err != nil {
		return nil, err
	}
	openConsumers.Store(args.Consumer, kept)
	return struct{}{}, nil
}

func receivedSoFar(raw json.RawMessage) (any, error) {
	var args consumerArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	found, ok := openConsumers.Load(args.Consumer)
	if !ok {
		return nil, fmt.Errorf("no open consumer %q", args.Consumer)
	}
	kept := found.(*keptConsumer)
	deadline := time.Now().Add(time.Duration(args.TimeoutMs) * time.Millisecond)
	for {
		messages := kept.soFar()
		if len(messages) >= args.Count || time.Now().After(deadline) {
			return map[string]any{"messages": messages}, nil
		}
		time.Sleep(waitInterval)
	}
}

func closeConsumer(raw json.RawMessage) (any, error) {
	var args consumerArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	found, ok := openConsumers.LoadAndDelete(args.Consumer)
	if !ok {
		return nil, fmt.Errorf("no open consumer %q", args.Consumer)
	}
	return struct{}{}, found.(*keptConsumer).shutdown()
}

func (args consumerArgs) options() []consumer.Option {
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(args.Namesrv, ";"))),
		consumer.WithGroupName(args.Group),
		consumer.WithInstance(uuid.NewString()),
		consumer.WithConsumeFromWhere(starts[args.Start]),
		consumer.WithConsumerOrder(args.Kind == "orderly"),
		consumer.WithSuspendCurrentQueueTimeMillis(pollTimeout),
	}
	if args.StartTime != "" {
		options = append(options, consumer.WithConsumeTimestamp(args.StartTime))
	}
	if args.AttemptsMax > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(args.AttemptsMax-1))
	}
	if args.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if args.TraceTopic != "" {
		options = append(options, consumer.WithTrace(traceConfig(args.TraceTopic, args.Namesrv)))
	}
	return options
}

func (args consumerArgs) selector() consumer.MessageSelector {
	if args.SQL != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: args.SQL}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: args.Expression}
}

func (kept *keptConsumer) openPush(args consumerArgs) error {
	pushed, err := rocketmq.NewPushConsumer(args.options()...)
	if err != nil {
		return err
	}
	again := consumer.ConsumeRetryLater
	if args.Kind == "orderly" {
		again = consumer.SuspendCurrentQueueAMoment
	}
	take := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if kept.take(batch) {
			return consumer.ConsumeSuccess, nil
		}
		return again, nil
	}
	if err := pushed.Subscribe(args.Topic, args.selector(), take); err != nil {
		return err
	}
	kept.shutdown = pushed.Shutdown
	return pushed.Start()
}

func (kept *keptConsumer) openPull(args consumerArgs) error {
	polled, err := rocketmq.NewPullConsumer(args.options()...)
	if err != nil {
		return err
	}
	if err := polled.Subscribe(args.Topic, args.selector()); err != nil {
		return err
	}
	if err := polled.Start(); err != nil {
		return err
	}
	closing, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		for {
			select {
			case <-closing:
				return
			default:
			}
			batch, err := polled.Poll(context.Background(), pollTimeout)
			if err != nil {
				continue
			}
			kept.take(batch.GetMsgList())
			polled.ACK(context.Background(), batch, consumer.ConsumeSuccess)
		}
	}()
	kept.shutdown = func() error {
		close(closing)
		<-closed
		return polled.Shutdown()
	}
	return nil
}

// take keeps messages; false when one of them is to come again.
func (kept *keptConsumer) take(batch []*primitive.MessageExt) bool {
	kept.keeping.Lock()
	defer kept.keeping.Unlock()
	isDone := true
	for _, one := range batch {
		kept.messages = append(kept.messages, shown(one))
		isDone = isDone && one.ReconsumeTimes >= kept.failures
	}
	return isDone
}

func (kept *keptConsumer) soFar() []received {
	kept.keeping.Lock()
	defer kept.keeping.Unlock()
	return append([]received{}, kept.messages...)
}
