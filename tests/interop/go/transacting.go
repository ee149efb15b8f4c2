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

type transactArgs struct {
	Producer string       `json:"producer"`
	Namesrv  string       `json:"namesrv"`
	Group    string       `json:"group"`
	Topic    string       `json:"topic"`
	Messages []transacted `json:"messages"`
}

type transacted struct {
	Body   string `json:"body"`
	Keys   string `json:"keys"`
	Ending string `json:"ending"`
}

// Java's names, which tests use.
var endings = map[string]primitive.LocalTransactionState{
	"COMMIT_MESSAGE":   primitive.CommitMessageState,
	"ROLLBACK_MESSAGE": primitive.RollbackMessageState,
	"UNKNOW":           primitive.UnknowState,
}

// Each message says itself how its transaction ends; whatever a broker asks about is committed.
type asTold struct {
	endings sync.Map
}

func (told *asTold) ExecuteLocalTransaction(
	message *primitive.Message,
) primitive.LocalTransactionState {
	ending, _ := told.endings.LoadAndDelete(message)
	return ending.(primitive.LocalTransactionState)
}

func (told *asTold) CheckLocalTransaction(
	*primitive.MessageExt,
) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

type transactor struct {
	rocketmq.TransactionProducer
	told *asTold
}

func openTransactions(raw json.RawMessage) (any, error) {
	var args transactArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	told := &asTold{}
	made, err := rocketmq.NewTransactionProducer(
		told,
		producer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(args.Namesrv, ";"))),
		producer.WithGroupName(args.Group),
		producer.WithInstanceName(uuid.NewString()),
	)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	opened := transactor{made, told}
	open.Store(args.Producer, opened)
	// A producer knows no broker before it sends.
	hello := transacted{Body: "hello", Ending: "COMMIT_MESSAGE"}
	_, err = opened.send(args.Topic, hello)
	return struct{}{}, err
}

func transact(raw json.RawMessage) (any, error) {
	var args transactArgs
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	kept, ok := open.Load(args.Producer)
	if !ok {
		return nil, fmt.Errorf("no open producer %q", args.Producer)
	}
	ids := []string{}
	for _, each := range args.Messages {
		id, err := kept.(transactor).send(args.Topic, each)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return map[string][]string{"message_ids": ids}, nil
}

func (opened transactor) send(topic string, described transacted) (string, error) {
	message := primitive.NewMessage(topic, []byte(described.Body))
	if described.Keys != "" {
		message.WithKeys(strings.Fields(described.Keys))
	}
	opened.told.endings.Store(message, endings[described.Ending])
	result, err := opened.SendMessageInTransaction(context.Background(), message)
	if err != nil {
		return "", err
	}
	return result.MsgID, nil
}
