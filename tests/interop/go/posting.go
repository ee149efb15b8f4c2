package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendTimeout = 60 * time.Second

type wish struct {
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	BodyBytes  int               `json:"body_bytes"`
	BodyHex    *string           `json:"body_hex"`
	Noise      bool              `json:"noise"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Flag       int32             `json:"flag"`
	Properties map[string]string `json:"properties"`
	DelayLevel int               `json:"delay_level"`
	Shard      string            `json:"shard"`
	Broker     string            `json:"broker"`
	QueueID    *int              `json:"queue_id"`
}

type postArgs struct {
	Producer string `json:"producer"`
	Mode     string `json:"mode"`
	Messages []wish `json:"messages"`
}

type outcome struct {
	Error           string `json:"error"`
	Status          string `json:"status"`
	MessageID       string `json:"message_id"`
	OffsetMessageID string `json:"offset_message_id"`
	Broker          string `json:"broker"`
	QueueID         int    `json:"queue_id"`
	QueueOffset     int64  `json:"queue_offset"`
}

// The queues that tests name, by message: the client overwrites what a message says itself.
var named sync.Map

// chosenQueue takes the queue that a test names, else the one of a sharding key, else the next.
type chosenQueue struct {
	byKey, inTurn producer.QueueSelector
}

func (chosen chosenQueue) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, last string,
) *primitive.MessageQueue {
	if queue, ok := named.Load(message); ok {
		return queue.(*primitive.MessageQueue)
	}
	if message.GetShardingKey() != "" {
		return chosen.byKey.Select(message, queues, last)
	}
	return chosen.inTurn.Select(message, queues, last)
}

// post sends messages described one by one; the answer has an outcome for each.
func post(raw json.RawMessage) (any, error) {
	var args postArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	kept, ok := open.Load(args.Producer)
	if !ok {
		return nil, fmt.Errorf("no open producer %q", args.Producer)
	}
	messages := make([]*primitive.Message, 0, len(args.Messages))
	for _, described := range args.Messages {
		messages = append(messages, described.message())
	}
	outcomes, err := postAll(kept.(rocketmq.Producer), args.Mode, messages)
	return map[string]any{"outcomes": outcomes}, err
}

func postAll(
	through rocketmq.Producer, mode string, messages []*primitive.Message,
) ([]outcome, error) {
	outcomes := []outcome{}
	if mode == "sync" {
		for _, one := range messages {
			ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
			outcomes = append(outcomes, outcomeOf(through.SendSync(ctx, one)))
			cancel()
		}
		return outcomes, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	switch mode {
	case "batch":
		outcomes = append(outcomes, outcomeOf(through.SendSync(ctx, messages...)))
	case "oneway":
		for _, one := range messages {
			if err := through.SendOneWay(ctx, one); err != nil {
				return nil, err
			}
		}
	case "async":
		answers := make(chan outcome, len(messages))
		for _, one := range messages {
			answered := func(_ context.Context, result *primitive.SendResult, err error) {
				answers <- outcomeOf(result, err)
			}
			if err := through.SendAsync(ctx, answered, one); err != nil {
				return nil, err
			}
		}
		for range messages {
			select {
			case one := <-answers:
				outcomes = append(outcomes, one)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	default:
		return nil, fmt.Errorf("no mode %q", mode)
	}
	return outcomes, nil
}

func outcomeOf(result *primitive.SendResult, err error) outcome {
	if err != nil {
		return outcome{Error: err.Error(), QueueID: -1, QueueOffset: -1}
	}
	return outcome{
		Status:          statuses[result.Status],
		MessageID:       result.MsgID,
		OffsetMessageID: result.OffsetMsgID,
		Broker:          result.MessageQueue.BrokerName,
		QueueID:         result.MessageQueue.QueueId,
		QueueOffset:     result.QueueOffset,
	}
}

func (described wish) message() *primitive.Message {
	made := primitive.NewMessage(described.Topic, described.body())
	if described.Tags != "" {
		made.WithTag(described.Tags)
	}
	if described.Keys != "" {
		made.WithKeys([]string{described.Keys})
	}
	if described.Shard != "" {
		made.WithShardingKey(described.Shard)
	}
	if described.DelayLevel > 0 {
		made.WithDelayTimeLevel(described.DelayLevel)
	}
	for name, value := range described.Properties {
		made.WithProperty(name, value)
	}
	made.Flag = described.Flag
	if described.QueueID != nil {
		named.Store(made, &primitive.MessageQueue{
			Topic: described.Topic, BrokerName: described.Broker, QueueId: *described.QueueID,
		})
	}
	return made
}

// body is the bytes given, or the text given, filled up to a size: with dots, or with noise that
// does not compress.
func (described wish) body() []byte {
	if described.BodyHex != nil {
		body, err := hex.DecodeString(*described.BodyHex)
		if err != nil {
			panic(err)
		}
		return body
	}
	size := max(len(described.Body), described.BodyBytes)
	body := make([]byte, size)
	if described.Noise {
		rand.New(rand.NewSource(int64(size))).Read(body)
	} else {
		for at := range body {
			body[at] = '.'
		}
	}
	copy(body, described.Body)
	return body
}
