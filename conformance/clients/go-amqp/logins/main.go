// Command logins logs in as each line of standard input says; README.md has the lines and the answers.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	patience     = time.Minute
	tokenOctets  = 8192
	fieldsOfLine = 4
)

func options(mechanism, user, proof string) (*amqp.ConnOptions, error) {
	switch mechanism {
	case "ANONYMOUS":
		return &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}, nil
	case "PLAIN":
		return &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(user, proof)}, nil
	case "XOAUTH2":
		return &amqp.ConnOptions{SASLType: amqp.SASLTypeXOAUTH2(user, proof, tokenOctets)}, nil
	case "EXTERNAL":
		pair, err := tls.LoadX509KeyPair(proof, proof)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{Certificates: []tls.Certificate{pair}}
		return &amqp.ConnOptions{SASLType: amqp.SASLTypeExternal(""), TLSConfig: config}, nil
	}
	return nil, fmt.Errorf("%s is not one of this library's", mechanism)
}

// Go trusts whom the environment variable SSL_CERT_FILE names.
func logIn(ctx context.Context, line string) (*amqp.Conn, error) {
	fields := strings.Split(line, "\t")
	if len(fields) < fieldsOfLine {
		return nil, fmt.Errorf("expected %d fields, got %d", fieldsOfLine, len(fields))
	}
	how, err := options(fields[1], fields[2], fields[3])
	if err != nil {
		return nil, err
	}
	connection, err := amqp.Dial(ctx, fields[0], how)
	if err != nil {
		return nil, err
	}
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	sender, err := session.NewSender(ctx, "greetings", nil)
	if err != nil {
		return nil, err
	}
	return connection, sender.Send(ctx, amqp.NewMessage([]byte("hello")), nil)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		connection, err := logIn(ctx, lines.Text())
		cancel()
		if err == nil {
			fmt.Println("in")
			lines.Scan()
			err = connection.Close()
		}
		if err != nil {
			fmt.Println("refused", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println("out")
	}
}
