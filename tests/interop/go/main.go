// Command driver drives the official Go client on orders from a test: one JSON object per line in,
// one per line out, in the shape of the Java driver. Whatever else is printed goes to stderr.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type request struct {
	ID       int             `json:"id"`
	Scenario string          `json:"scenario"`
	Args     json.RawMessage `json:"args"`
}

type answer struct {
	ID     int    `json:"id"`
	OK     bool   `json:"ok"`
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// A scenario takes its arguments as JSON and returns something JSON can show.
type scenario func(args json.RawMessage) (any, error)

var scenarios = map[string]scenario{
	"ping":           ping,
	"produce":        produce,
	"open_producer":  openProducer,
	"send":           sendWithOpen,
	"close_producer": closeProducer,
	"consume":        consume,
	"post":           post,
	"open_consumer":  openConsumer,
	"received":       receivedSoFar,
	"close_consumer": closeConsumer,
	"request":        requestReplies,
	"open_replier":   openReplier,
	"close_replier":  closeReplier,

	"open_transactions": openTransactions,
	"transact":          transact,
}

const requestBytesMax = 16 << 20

var writing sync.Mutex

func main() {
	rlog.SetLogLevel("warn")
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, requestBytesMax)
	for requests.Scan() {
		var asked request
		if err := json.Unmarshal(requests.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, "not a request:", err)
			os.Exit(1)
		}
		if asked.Scenario == "exit" {
			write(answer{ID: asked.ID, OK: true})
			return
		}
		go func() { write(run(asked)) }()
	}
}

func write(given answer) {
	writing.Lock()
	defer writing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(given); err != nil {
		fmt.Fprintln(os.Stderr, "cannot answer:", err)
	}
}

func run(asked request) answer {
	known, ok := scenarios[asked.Scenario]
	if !ok {
		return answer{ID: asked.ID, Error: "no scenario " + asked.Scenario}
	}
	result, err := known(asked.Args)
	if err != nil {
		return answer{ID: asked.ID, Error: err.Error()}
	}
	return answer{ID: asked.ID, OK: true, Result: result}
}

func ping(json.RawMessage) (any, error) {
	return map[string]string{"go": runtime.Version()}, nil
}
