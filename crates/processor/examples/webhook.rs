//! Calls a webhook for every change. A refused change is retried, then moved to the dead letters; other changes
//! do not wait for it.
//!
//! ```sh
//! cargo run -p headwater-processor --example webhook
//! ```

use headwater_processor::lease_store::MemoryLeases;
use headwater_processor::source::MemoryFeed;
use headwater_processor::{
    Ack, Backoff, Batch, DeadLetter, HandlerError, Options, Processor, RetryThenDeadLetter, Start,
};
use headwater_runtime::{BoxFuture, Runtime};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (called, dead) = run().await?;
    println!("{called} changes were accepted, {dead} moved to the dead letters");
    Ok(())
}

/// Returns how many changes the webhook accepted, and how many became dead letters.
pub(crate) async fn run() -> Result<(usize, usize), Box<dyn Error>> {
    let runtime = Runtime::system();
    let (accepted, mut accepts) = mpsc::unbounded_channel();
    let hook = listen(&runtime, accepted).await?;
    let feed = MemoryFeed::new(runtime.clone(), 2);
    for number in 0..20 {
        // One change contains what the webhook refuses.
        let text = if number == 7 { "unwelcome" } else { "hello" };
        feed.put(&format!("k{number}"), &[(&number.to_string(), text)]);
    }

    let (letter, mut letters) = mpsc::unbounded_channel();
    let mut options = Options::native("webhook");
    options.start = Start::Beginning;
    options.batch_items_max = 1;
    let backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(100) };
    options.failure = Arc::new(RetryThenDeadLetter { attempts: 3, backoff, ..Default::default() });
    options.dead_letters = Some(Arc::new(move |dead: DeadLetter| {
        let sent = letter.send(dead).map_err(|error| error.to_string());
        Box::pin(async move { sent }) as BoxFuture<Result<(), String>>
    }));
    let processor = Processor::builder()
        .source(feed)
        .leases(MemoryLeases::new(runtime))
        .handler(move |batch: Batch| async move {
            for change in batch.changes.iter() {
                post(hook, change.body()).await?;
            }
            Ok::<_, HandlerError>(Ack::Done)
        })
        .options(options)
        .build()?;
    let running = processor.start().await?;
    let (mut called, mut dead) = (0, 0);
    while called + dead < 20 {
        tokio::select! {
            Some(()) = accepts.recv() => called += 1,
            Some(_) = letters.recv() => dead += 1,
            else => break,
        }
    }
    running.stop().await;
    Ok((called, dead))
}

/// Sends one change; an answer other than 2xx is an error.
async fn post(to: SocketAddr, body: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    let length = body.len();
    let head = format!("POST / HTTP/1.1\r\nhost: {to}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let status = String::from_utf8_lossy(&answer).chars().skip(9).take(3).collect::<String>();
    match status.starts_with('2') {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("it answered {status}"))),
    }
}

/// The webhook: accepts every change that is not "unwelcome".
async fn listen(
    runtime: &Runtime,
    accepted: mpsc::UnboundedSender<()>,
) -> Result<SocketAddr, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    runtime.spawn("webhook", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            while !seen.ends_with(b"}") {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => seen.extend_from_slice(&buffer[..count]),
                }
            }
            let welcome = !String::from_utf8_lossy(&seen).contains("unwelcome");
            let status = if welcome { "204 No Content" } else { "422 Unwelcome" };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
            if welcome {
                let _ = accepted.send(());
            }
        }
    });
    Ok(at)
}
