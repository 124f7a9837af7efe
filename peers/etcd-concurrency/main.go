// Takes the locks of etcd the way its own Go package does: to be compared with, and to exclude.
//
//	etcd-concurrency turns ENDPOINT NAME REFEREE   holds again and again, and tells a referee
//
// and what every peer does.
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func session(endpoint string, ttl int) *concurrency.Session {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	return session
}

func connect(servers []string) Library {
	ctx := context.Background()
	ours := func() *concurrency.Session { return session(servers[0], int((lease()+time.Second-1)/time.Second)) }
	mutex := func(session *concurrency.Session, name string) Lock {
		mutex := concurrency.NewMutex(session, name)
		return Lock{func() error { return mutex.Lock(ctx) }, func() error { return mutex.Unlock(ctx) }}
	}
	shared := ours()
	return Library{
		// A session has one place in a line: each lock needs one of its own to wait for another.
		Lock: func(name string) Lock { return mutex(ours(), name) },
		Kept: func(name string) Lock { return mutex(shared, name) },
		Lead: func(name string) Lock {
			election := concurrency.NewElection(ours(), name)
			return Lock{
				func() error { return election.Campaign(ctx, "candidate") },
				func() error { return election.Resign(ctx) },
			}
		},
		Try: func(name string) (bool, error) {
			err := concurrency.NewMutex(shared, name).TryLock(ctx)
			if errors.Is(err, concurrency.ErrLocked) {
				return false, nil
			}
			return err == nil, err
		},
		Close: shared.Close,
	}
}

func main() {
	if len(os.Args) == 5 && os.Args[1] == "turns" {
		turns(concurrency.NewMutex(session(os.Args[2], 10), os.Args[3]), os.Args[4])
	}
	Drive(connect)
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
