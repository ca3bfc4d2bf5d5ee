// Command interop runs go-amqp against any AMQP 1.0 broker: interop amqp://host:port
//
// It prints one line for each check and exits 0 if none failed. Each check has its own queue and its own connection.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

type check struct {
	name string
	run  func(*client)
}

func runCheck(url string, item check) (passed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	var c *client
	defer func() {
		if c != nil {
			c.close()
		}
		if reason := recover(); reason != nil {
			message, expected := reason.(failure)
			if !expected {
				panic(reason)
			}
			fmt.Printf("FAIL %s: %s\n", item.name, strings.Join(strings.Fields(string(message)), " "))
			return
		}
		fmt.Printf("ok %s\n", item.name)
		passed = true
	}()
	c = newClient(ctx, url)
	item.run(c)
	return
}

var skips = []string{
	"amqp-value decimal32, decimal64, decimal128, char: go-amqp has no Go type for them",
	"symbol told from string on receiving: go-amqp decodes both as string",
	"amqp-value described: go-amqp keeps its described type internal",
	"SCRAM: go-amqp has ANONYMOUS, PLAIN, EXTERNAL and XOAUTH2",
	"half messages, capability half-messages in the answer to the attach: go-amqp does not show it",
	"half messages, accepting automatically: go-amqp never does",
	"reconnect by the library: go-amqp leaves it to the application",
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: interop amqp://host:port [part of a check's name]")
		os.Exit(2)
	}
	part := strings.Join(os.Args[2:], "")
	ran, failed := 0, 0
	for _, item := range slices.Concat(valueChecks(), behaviourChecks, halfChecks(), retentionChecks()) {
		if !strings.Contains(item.name, part) {
			continue
		}
		ran++
		if !runCheck(os.Args[1], item) {
			failed++
		}
	}
	for _, reason := range skips {
		fmt.Println("skip " + reason)
	}
	if ran == 0 || failed > 0 {
		os.Exit(1)
	}
}
