// go test, with go-amqp: the broker is a process that ends with the suite.
package orders

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
)

var (
	url      string
	commands io.WriteCloser
	answers  *bufio.Scanner
)

func TestMain(m *testing.M) {
	name := os.Getenv("AMQP_BROKER")
	if name == "" {
		name = "amqp-broker"
	}
	server := exec.Command(name, "test-server")
	server.Stderr = os.Stderr
	commands, _ = server.StdinPipe()
	output, _ := server.StdoutPipe()
	if err := server.Start(); err != nil {
		panic(err)
	}
	answers = bufio.NewScanner(output)
	answers.Scan()
	url = answers.Text()
	status := m.Run()
	commands.Close()
	server.Wait()
	os.Exit(status)
}

func ask(t *testing.T, command string) string {
	fmt.Fprintln(commands, command)
	answers.Scan()
	if strings.HasPrefix(answers.Text(), `{"error"`) {
		t.Fatal(answers.Text())
	}
	return answers.Text()
}

func send(t *testing.T, body string) error {
	ctx := context.Background()
	connection, err := amqp.Dial(ctx, url, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := session.NewSender(ctx, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	return sender.Send(ctx, amqp.NewMessage([]byte(body)), nil)
}

func TestAnOrderIsSent(t *testing.T) {
	if err := send(t, "a pair of shoes"); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, `["depth", "orders"]`); got != `{"result": 1}` {
		t.Fatal(got)
	}
	if got := ask(t, `["peek", "orders"]`); !strings.Contains(got, "a pair of shoes") {
		t.Fatal(got)
	}
	ask(t, `["purge", "orders"]`)
}

func TestAnOrderIsRefused(t *testing.T) {
	ask(t, `["message", "reject", {"text": "sold out"}]`)
	var refused *amqp.Error
	if err := send(t, "another pair"); !errors.As(err, &refused) || refused.Description != "sold out" {
		t.Fatal(err)
	}
	if got := ask(t, `["depth", "orders"]`); got != `{"result": 0}` {
		t.Fatal(got)
	}
}
