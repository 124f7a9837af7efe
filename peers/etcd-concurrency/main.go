// Takes the locks of etcd the way its own Go package does: to be compared with, and to exclude.
//
//	etcd-concurrency turns ENDPOINT NAME REFEREE   holds again and again, and tells a referee
//	etcd-concurrency contend ENDPOINT NAME MILLIS  counts how often it gets the lock in that time
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: etcd-concurrency turns|contend ENDPOINT NAME REFEREE|MILLIS")
		os.Exit(2)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[2]}, DialTimeout: 5 * time.Second})
	check(err)
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	check(err)
	mutex := concurrency.NewMutex(session, os.Args[3])
	switch os.Args[1] {
	case "turns":
		turns(mutex, os.Args[4])
	case "contend":
		contend(mutex, os.Args[4])
	}
}

func turns(mutex *concurrency.Mutex, referee string) {
	connection, err := net.Dial("tcp", referee)
	check(err)
	tell := func(what string) {
		_, err := connection.Write([]byte(what))
		check(err)
		_, err = connection.Read(make([]byte, 1))
		check(err)
	}
	for {
		check(mutex.Lock(context.Background()))
		tell("g")
		tell("x")
		check(mutex.Unlock(context.Background()))
	}
}

func contend(mutex *concurrency.Mutex, millis string) {
	limit, err := strconv.Atoi(millis)
	check(err)
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	start := time.Now()
	pairs := 0
	for time.Since(start) < time.Duration(limit)*time.Millisecond {
		check(mutex.Lock(context.Background()))
		check(mutex.Unlock(context.Background()))
		pairs++
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"pairs": pairs, "seconds": time.Since(start).Seconds()}))
}
