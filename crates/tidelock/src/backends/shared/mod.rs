//! Code that several stores share. No store uses code of another; what two of them need is here.
//!
//! | file | what |
//! |---|---|
//! | `address` | hosts and ports |
//! | `answers` | grants, places in line and views, from the numbers that stores answer |
//! | `attend` | the tasks of connections, and jobs between two calls of `wait` |
//! | `crowded` | names whose claims go alone |
//! | `failures` | conclusions and sentences that are the same for every store |
//! | `following` | names that are followed, where a store tells of the next change only |
//! | `kept` | how much a database keeps of names, in a sentence |
//! | `longest_ttl` | the URL's option `longest_ttl_ms`, and claims that ask for more |
//! | `mutex` | mutexes that outlive a panic |
//! | `named` | stores in memory that a process shares by name |
//! | `news` | news on their way from connections to the wake |
//! | `once` | a connection that is made when it is first needed, by one caller |
//! | `options` | options of URLs, and those about TLS |
//! | `order` | who holds and who is next, for stores that leave it to their clients |
//! | `provider` | the cryptography of drivers that encrypt connections themselves |
//! | `renewals` | renewals that go together, and those that need a rule |
//! | `served` | the verbs of stores behind a network |
//! | `silence` | how long a server has not answered |
//! | `steps` | enters and leaves, as questions that may go together |
//! | `tls`, `tcp` | connections that are our own, encrypted or not |
//! | `together` | questions that arrive while a call is under way, and go together in the next |
//! | `typed` | typed configs, which are URLs in parts |
//! | `unanswered` | questions that may still arrive |
//! | `units` | time and numbers as stores have them |
//! | `url` | URLs of stores with servers |

// A build with all stores shows what none of them needs.
#![cfg_attr(
    not(all(
        feature = "etcd",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    )),
    allow(dead_code, reason = "no store needs all of it")
)]

pub(crate) mod address;
pub(crate) mod answers;
pub(crate) mod attend;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) mod crowded;
pub(crate) mod failures;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(crate) mod following;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod kept;
pub(crate) mod longest_ttl;
pub(crate) mod mutex;
pub(crate) mod named;
pub(crate) mod news;
pub(crate) mod once;
pub(crate) mod options;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(crate) mod order;
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) mod provider;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod renewals;
pub(crate) mod served;
pub(crate) mod silence;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) mod steps;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
pub(crate) mod tcp;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
pub(crate) mod tls;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) mod together;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
pub(crate) mod typed;
pub(crate) mod unanswered;
pub(crate) mod units;
pub(crate) mod url;

#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper",
    all(feature = "stock", feature = "mysql")
))]
pub(crate) use self::attend::attend;
