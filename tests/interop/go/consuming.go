package main

import (
	"context"
	"crypto/sha256"
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

type consumeArgs struct {
	Namesrv    string `json:"namesrv"`
	Group      string `json:"group"`
	Topic      string `json:"topic"`
	Expression string `json:"expression"`
	Count      int    `json:"count"`
	TimeoutMs  int    `json:"timeout_ms"`
}

// Of a larger body only the digest is shown.
const shownBytesMax = 64 << 10

type received struct {
	Topic          string            `json:"topic"`
	Body           string            `json:"body"`
	BodyBytes      int               `json:"body_bytes"`
	BodyDigest     string            `json:"body_digest"`
	Tags           string            `json:"tags"`
	Keys           string            `json:"keys"`
	Flag           int32             `json:"flag"`
	RecordBytes    int32             `json:"record_bytes"`
	Properties     map[string]string `json:"properties"`
	MessageID      string            `json:"message_id"`
	QueueID        int               `json:"queue_id"`
	QueueOffset    int64             `json:"queue_offset"`
	ReconsumeTimes int32             `json:"reconsume_times"`
	BornMs         int64             `json:"born_ms"`
	StoredMs       int64             `json:"stored_ms"`
	ReceivedMs     int64             `json:"received_ms"`
}

// consume runs a push consumer until enough messages came or time is up.
func consume(raw json.RawMessage) (any, error) {
	var args consumeArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	pushed, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(args.Namesrv, ";"))),
		consumer.WithGroupName(args.Group),
		consumer.WithInstance(uuid.NewString()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}

	var keeping sync.Mutex
	messages := []received{}
	enough := make(chan struct{})
	keep := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		keeping.Lock()
		defer keeping.Unlock()
		for _, one := range batch {
			messages = append(messages, shown(one))
			if len(messages) == args.Count {
				close(enough)
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: args.Expression}
	if err := pushed.Subscribe(args.Topic, selector, keep); err != nil {
		return nil, err
	}
	if err := pushed.Start(); err != nil {
		return nil, err
	}
	select {
	case <-enough:
	case <-time.After(time.Duration(args.TimeoutMs) * time.Millisecond):
	}
	if err := pushed.Shutdown(); err != nil {
		return nil, err
	}

	keeping.Lock()
	defer keeping.Unlock()
	return map[string]any{"messages": append([]received{}, messages...)}, nil
}

func shown(message *primitive.MessageExt) received {
	digest := fmt.Sprintf("%x", sha256.Sum256(message.Body))
	body := string(message.Body)
	if len(body) > shownBytesMax {
		body = "sha256:" + digest
	}
	return received{
		Topic:          message.Topic,
		Body:           body,
		BodyBytes:      len(message.Body),
		BodyDigest:     digest,
		Tags:           message.GetTags(),
		Keys:           message.GetKeys(),
		Flag:           message.Flag,
		RecordBytes:    message.StoreSize,
		Properties:     message.GetProperties(),
		MessageID:      message.MsgId,
		QueueID:        message.Queue.QueueId,
		QueueOffset:    message.QueueOffset,
		ReconsumeTimes: message.ReconsumeTimes,
		BornMs:         message.BornTimestamp,
		StoredMs:       message.StoreTimestamp,
		ReceivedMs:     time.Now().UnixMilli(),
	}
}
