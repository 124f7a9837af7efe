// redsync: lock and release one name.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
)

type question struct {
	Scenario string   `json:"scenario"`
	Servers  []string `json:"servers"`
	Seconds  float64  `json:"seconds"`
}

func main() {
	var asked question
	if err := json.Unmarshal([]byte(os.Args[1]), &asked); err != nil {
		panic(err)
	}
	if asked.Scenario != "pair" {
		panic("no scenario " + asked.Scenario)
	}
	var pools []redis.Pool
	for _, server := range asked.Servers {
		pools = append(pools, pool.NewPool(goredis.NewClient(&goredis.Options{Addr: server})))
	}
	mutex := redsync.New(pools...).NewMutex("peer", redsync.WithExpiry(2*time.Second))
	pair := func() {
		if err := mutex.Lock(); err != nil {
			panic(err)
		}
		if _, err := mutex.Unlock(); err != nil {
			panic(err)
		}
	}
	for i := 0; i < 200; i++ {
		pair()
	}
	start, pairs := time.Now(), 0
	for time.Since(start).Seconds() < asked.Seconds {
		pair()
		pairs++
	}
	fmt.Printf("{\"pairs\": %d, \"seconds\": %f}\n", pairs, time.Since(start).Seconds())
}
