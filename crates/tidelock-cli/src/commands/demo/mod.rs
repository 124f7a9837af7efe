//! `tidelock demo flash-sale`: the same sale four ways, by real processes.

mod buyers;
mod chart;
mod progress;
mod results;
mod way;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
};

use tidelock::stock::{Stock, Stocks};

use self::{
    buyers::{Done, URLS, Work},
    progress::Progress,
    results::{Outcome, Results},
    way::Way,
};
use crate::{
    args::{Demos, FlashSale, Store as StoreArgs},
    clock::Moment,
    exit::Exit,
    output::{self, Trouble},
    store::{self, Store},
};

/// Runs a demonstration.
pub(crate) async fn run(demo: Demos) -> Result<Exit, Trouble> {
    match demo {
        Demos::FlashSale(args) => sell(&args).await,
        Demos::Buyers(args) => buyers::run(&args.work).await,
    }
}

async fn sell(args: &FlashSale) -> Result<Exit, Trouble> {
    // Not after a minute of selling.
    if let Some(folder) =
        args.out.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
    {
        return Err(Trouble::Usage(format!("there is no directory {} for the chart", folder.display())));
    }
    let shop = Shop::open(args)?;
    let progress = Progress::new();
    let mut results = Results::new(args, &shop.shown);
    for way in Way::ALL {
        match shop.sell(way, args, &progress).await? {
            Ok(outcome) => results.ways.push(outcome),
            Err(why) => results.left_out.push(why),
        }
    }
    drop(progress);
    fs::write(&args.out, chart::draw(&results)).map_err(|error| {
        Trouble::Usage(format!("cannot write the chart to {}: {error}", args.out.display()))
    })?;
    if args.json {
        output::json(&results)?;
    } else {
        output::text(&results.to_text(&args.out))?;
    }
    Ok(if results.keeps_its_promise() { Exit::Done } else { Exit::No })
}

/// Where the stock is: the store, and a directory for the shop's own books and, if nothing else is said, the store.
struct Shop {
    folder: Folder,
    urls: Vec<String>,
    shown: String,
}

impl Shop {
    fn open(args: &FlashSale) -> Result<Self, Trouble> {
        let folder = Folder::new()?;
        let mut urls = args.url.clone();
        if urls.is_empty() {
            let after = StoreArgs { url: None, url_file: args.url_file.clone() };
            let named = Store::named(if after.is_empty() { &args.store } else { &after })?;
            urls.extend(named.map(|store| store.url().to_owned()));
        }
        let shown = if urls.is_empty() {
            "files of this machine".to_owned()
        } else {
            urls.iter().map(|url| store::without_password(url)).collect::<Vec<_>>().join(", ")
        };
        if urls.iter().any(|url| url.starts_with("memory:")) {
            return Err(Trouble::Usage(
                "buyers are processes of their own and do not share memory: use another store".into(),
            ));
        }
        if urls.is_empty() {
            urls.push(format!("file:{}", folder.0.join("store").display()));
        }
        Ok(Self { folder, urls, shown })
    }

    /// One sale, or why this store cannot have it.
    async fn sell(
        &self,
        way: Way,
        args: &FlashSale,
        progress: &Progress,
    ) -> Result<Result<Outcome, String>, Trouble> {
        let sale = format!("flash-sale-{:08x}-{}", std::process::id(), way.name());
        let books = self.folder.0.join(way.name());
        fs::write(&books, format!("{:010}", args.stock))?;
        let stock = match self.stock(way, &sale, args).await {
            Ok(stock) => stock,
            Err(error) if error.is_invalid_url() => return Ok(Err(format!("{}: {error}", way.title()))),
            Err(error) => return Err(error.into()),
        };
        let mut buyers = Vec::new();
        for process in 0..args.processes {
            let work = Work::new(way, &sale, &books, (args.buyers, args.processes, process));
            buyers.push(Buyer::start(&work, &self.urls)?);
        }
        let done = watch(buyers, way, args, progress)?;
        let left = match stock {
            Some(stock) => {
                let left = stock.remaining().await?;
                stock.close().await?;
                left
            }
            None => fs::read_to_string(&books)?.trim().parse().unwrap_or(0),
        };
        Ok(Ok(Outcome::new(way, args, &done, left)))
    }

    async fn stock(&self, way: Way, sale: &str, args: &FlashSale) -> tidelock::Result<Option<Stock>> {
        let segments = match way {
            Way::NoLock | Way::OneLock => return Ok(None),
            Way::Counter => 1,
            Way::Segments => args.segments,
        };
        let stocks = Stocks::connect_all(&self.urls).await?;
        stocks.open(sale, u64::from(args.stock)).segments(segments).await.map(Some)
    }
}

/// Lets all begin at the same moment, and hears them until all are done.
fn watch(
    mut buyers: Vec<Buyer>,
    way: Way,
    args: &FlashSale,
    progress: &Progress,
) -> Result<Vec<Done>, Trouble> {
    let hear = hear(&mut buyers);
    let mut done = Vec::new();
    let (mut ready, mut counts) = (0, vec![(0_u32, 0_u32); buyers.len()]);
    while done.len() < buyers.len() {
        let Ok((process, line)) = hear.recv() else {
            return Err(Trouble::Usage("a process of buyers ended before it was done; it said why".into()));
        };
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "ready" => {
                ready += 1;
                if ready == buyers.len() {
                    let start = Moment::now().as_nanos();
                    for buyer in &mut buyers {
                        buyer.tell(&format!("{start}\n"))?;
                    }
                }
            }
            "count" => {
                if let Some((sold, served)) = rest.split_once(' ') {
                    counts[process] = (sold.parse().unwrap_or(0), served.parse().unwrap_or(0));
                }
            }
            "done" => done.push(serde_json::from_str(rest).map_err(std::io::Error::from)?),
            _ => return Err(Trouble::Usage(format!("a process of buyers said {line:?}"))),
        }
        let (sold, served) = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        progress.show(way, sold, args.stock, served, args.buyers);
    }
    Ok(done)
}

/// What each process says, line by line.
fn hear(buyers: &mut [Buyer]) -> Receiver<(usize, String)> {
    let (tell, hear) = channel();
    for (process, buyer) in buyers.iter_mut().enumerate() {
        let (tell, said) = (tell.clone(), buyer.said.take());
        std::thread::spawn(move || {
            for line in said.into_iter().flat_map(BufReader::lines).map_while(Result::ok) {
                if tell.send((process, line)).is_err() {
                    break;
                }
            }
        });
    }
    hear
}

/// A process. Ended when it is dropped.
struct Buyer {
    child: Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Buyer {
    fn start(work: &Work, urls: &[String]) -> Result<Self, Trouble> {
        let work = serde_json::to_string(work).map_err(std::io::Error::from)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["demo", "buyers", &work])
            .env(URLS, urls.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().map(BufReader::new);
        Ok(Self { child, said })
    }

    fn tell(&mut self, line: &str) -> std::io::Result<()> {
        match &mut self.child.stdin {
            Some(stdin) => stdin.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }
}

impl Drop for Buyer {
    fn drop(&mut self) {
        // Gone already, if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary directory, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;

        let unique = Moment::now().as_nanos();
        let path = std::env::temp_dir().join(format!("tidelock-demo-{}-{unique:x}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is removed with the other temporary files.
        let _ = fs::remove_dir_all(Path::new(&self.0));
    }
}
