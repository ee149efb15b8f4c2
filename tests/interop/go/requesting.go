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
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/google/uuid"
)

// A request may be answered before a broker has heard of its producer; then the reply is lost.
const (
	firstRequestTTL  = 2 * time.Second
	firstRequestsMax = 30
)

type requestArgs struct {
	Replier   string   `json:"replier"`
	Namesrv   string   `json:"namesrv"`
	Group     string   `json:"group"`
	Topic     string   `json:"topic"`
	Bodies    []string `json:"bodies"`
	TimeoutMs int      `json:"timeout_ms"`
	PauseMs   int      `json:"pause_ms"`
}

type replied struct {
	Body       string            `json:"body"`
	Properties map[string]string `json:"properties"`
}

type keptReplier struct {
	keeping  sync.Mutex
	errors   []string
	shutdown func() error
}

var openRepliers sync.Map

func startedWith(args requestArgs, group string) (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(args.Namesrv, ";"))),
		producer.WithGroupName(group),
		producer.WithInstanceName(uuid.NewString()),
	)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func requestReplies(raw json.RawMessage) (any, error) {
	var args requestArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	asking, err := startedWith(args, "requests-"+uuid.NewString())
	if err != nil {
		return nil, err
	}
	defer asking.Shutdown()
	ttl := time.Duration(args.TimeoutMs) * time.Millisecond
	replies := []replied{}
	for number, body := range args.Bodies {
		ask := func(ttl time.Duration) (*primitive.Message, error) {
			message := primitive.NewMessage(args.Topic, []byte(body))
			return asking.Request(context.Background(), ttl, message)
		}
		tries, wait := 1, ttl
		if number == 0 {
			tries, wait = firstRequestsMax, min(ttl, firstRequestTTL)
		}
		reply, err := ask(wait)
		for ; err != nil && tries > 1; tries-- {
			reply, err = ask(wait)
		}
		if err != nil {
			return nil, err
		}
		replies = append(replies, replied{string(reply.Body), reply.GetProperties()})
	}
	return map[string]any{"replies": replies}, nil
}

func openReplier(raw json.RawMessage) (any, error) {
	var args requestArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	replying, err := startedWith(args, "replies-of-"+args.Group)
	if err != nil {
		return nil, err
	}
	asked, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(args.Namesrv, ";"))),
		consumer.WithGroupName(args.Group),
		consumer.WithInstance(uuid.NewString()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	kept := &keptReplier{errors: []string{}}
	reply := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, request := range batch {
			time.Sleep(time.Duration(args.PauseMs) * time.Millisecond)
			message, err := consumer.CreateReplyMessage(request, nil)
			if err == nil {
				// It drops the body that it is given.
				message.Body = []byte("re: " + string(request.Body))
				message.WithProperty("replier", "go")
				ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
				_, err = replying.SendSync(ctx, message)
				cancel()
			}
			if err != nil {
				kept.keeping.Lock()
				kept.errors = append(kept.errors, err.Error())
				kept.keeping.Unlock()
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	everything := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if err := asked.Subscribe(args.Topic, everything, reply); err != nil {
		return nil, err
	}
	kept.shutdown = func() error {
		if err := asked.Shutdown(); err != nil {
			return err
		}
		return replying.Shutdown()
	}
	if err := asked.Start(); err != nil {
		return nil, err
	}
	openRepliers.Store(args.Replier, kept)
	return struct{}{}, nil
}

func closeReplier(raw json.RawMessage) (any, error) {
	var args requestArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	found, ok := openRepliers.LoadAndDelete(args.Replier)
	if !ok {
		return nil, fmt.Errorf("no open replier %q", args.Replier)
	}
	kept := found.(*keptReplier)
	err := kept.shutdown()
	kept.keeping.Lock()
	defer kept.keeping.Unlock()
	return map[string]any{"errors": kept.errors}, err
}
