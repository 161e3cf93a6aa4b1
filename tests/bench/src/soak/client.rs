//! One client: each cycle attaches, looks, and undoes it in one of several ways.

use crate::images::{Files, Image};
use anyhow::{anyhow, bail, ensure, Context, Result};
use blockd::aidl::AttachRequest::AttachRequest;
use blockd::aidl::AttachResult::AttachResult;
use blockd::aidl::ErrorCode::ErrorCode;
use blockd::aidl::IImageDevices::IImageDevices;
use blockd::client::{self, Place};
use blockd::service::ipc::{self, Strong};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Ways that a cycle goes.
pub const KINDS: usize = 6;
/// How long the service may take to answer.
const START: Duration = Duration::from_secs(30);
/// One cycle in so many is a process that is killed.
const KILL_EVERY: usize = 101;

/// A connection, and what it attaches.
pub struct Client<'a> {
    socket: &'a Path,
    files: &'a Files,
    mark: &'a str,
    connection: Connection,
}

struct Connection {
    images: Strong<dyn IImageDevices>,
    client: Option<client::Client>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client.close();
        }
    }
}

impl Connection {
    fn new(socket: &Path) -> Result<Connection> {
        let place = Place::Unix(socket.to_owned());
        let client = client::Client::connect(&place, START, || unreachable!("not local"));
        let client = client.map_err(|e| anyhow!("{e}"))?;
        Ok(Connection {
            images: client.images().map_err(|e| anyhow!("{e}"))?,
            client: Some(client),
        })
    }

    fn attach(&self, requests: &[AttachRequest]) -> Result<Vec<AttachResult>> {
        let results = self.images.attachAll(requests);
        results.map_err(|e| anyhow!("attachAll: {}", ipc::explain(&e).2))
    }
}

fn request(image: &Image, name: String) -> Result<AttachRequest> {
    Ok(AttachRequest {
        file: Some(ipc::parcel_fd(File::open(&image.path)?.into())),
        name,
        ..AttachRequest::default()
    })
}

impl<'a> Client<'a> {
    /// Connects; the devices are named by `mark`.
    ///
    /// # Errors
    /// The service is not there.
    pub fn new(socket: &'a Path, files: &'a Files, mark: &'a str) -> Result<Client<'a>> {
        let connection = Connection::new(socket)?;
        Ok(Client {
            socket,
            files,
            mark,
            connection,
        })
    }

    fn image(&self, cycle: usize) -> &Image {
        &self.files.images[cycle % self.files.images.len()]
    }

    fn request(&self, cycle: usize) -> Result<AttachRequest> {
        request(self.image(cycle), format!("{}-{cycle}", self.mark))
    }

    /// Cycle number `cycle`; `foreign` is a device of somebody else's.
    ///
    /// # Errors
    /// An answer that must not be.
    pub fn cycle(&mut self, cycle: usize, foreign: u32) -> Result<()> {
        match cycle % KINDS {
            0 | 1 => self.lease(cycle),
            2 => self.detach(cycle),
            3 => self.one_of_them_fails(cycle),
            4 => self.gone(cycle),
            _ => self.forbidden(cycle, foreign),
        }
    }

    /// Attached, read, closed.
    fn lease(&self, cycle: usize) -> Result<()> {
        let results = self.connection.attach(&[self.request(cycle)?])?;
        let result = results.first().context("no result")?;
        self.check(cycle, result)
    }

    /// The device holds the payload.
    fn check(&self, cycle: usize, result: &AttachResult) -> Result<()> {
        let Some(device) = &result.device else {
            bail!("{}: {:?}", result.error.0, result.message);
        };
        let device = File::from(device.as_ref().try_clone()?);
        let image = self.image(cycle);
        let (mut got, mut want) = ([0; 4096], [0; 4096]);
        device.read_exact_at(&mut got, image.length - 4096)?;
        let end = image.offset + image.length;
        File::open(&image.path)?.read_exact_at(&mut want, end - 4096)?;
        ensure!(got == want, "{} holds something else", result.node);
        Ok(())
    }

    /// Without autoclear, as `blockctl image attach`: taken away by its number.
    fn detach(&self, cycle: usize) -> Result<()> {
        let mut request = self.request(cycle)?;
        request.autoclear = false;
        let mut results = self.connection.attach(&[request])?;
        let result = results.pop().context("no result")?;
        self.check(cycle, &result)?;
        let number = result.loopNumber;
        drop(result);
        let detached = self.connection.images.detach(number);
        detached.map_err(|e| anyhow!("detach: {}", ipc::explain(&e).2))
    }

    /// A good item between two that cannot be.
    fn one_of_them_fails(&self, cycle: usize) -> Result<()> {
        let mut outside = self.request(cycle)?;
        outside.offsetBytes = 1 << 40;
        let mut blocks = self.request(cycle)?;
        blocks.blockSizeBytes = 3000;
        let requests = [outside, self.request(cycle)?, blocks];
        let results = self.connection.attach(&requests)?;
        let errors: Vec<ErrorCode> = results.iter().map(|r| r.error).collect();
        let want = [
            ErrorCode::OUT_OF_RANGE,
            ErrorCode::OK,
            ErrorCode::INVALID_REQUEST,
        ];
        ensure!(errors == want, "{errors:?}");
        self.check(cycle, &results[1])
    }

    /// The connection ends with the lease open; then the lease does.
    fn gone(&mut self, cycle: usize) -> Result<()> {
        let results = self.connection.attach(&[self.request(cycle)?])?;
        self.connection = Connection::new(self.socket)?;
        self.check(cycle, &results[0])
    }

    /// A device of somebody else's may not be detached; then one of ours.
    fn forbidden(&self, cycle: usize, foreign: u32) -> Result<()> {
        let answer = self.connection.images.detach(foreign as i32);
        let code = answer.err().and_then(|status| ipc::explain(&status).0);
        ensure!(
            code == Some(ErrorCode::PERMISSION.0),
            "detaching somebody else's device gave {code:?}"
        );
        self.lease(cycle)
    }

    /// Attaches without autoclear and forgets it.
    ///
    /// # Errors
    /// It was not attached.
    pub fn leak(&self) -> Result<()> {
        let mut request = self.request(0)?;
        request.autoclear = false;
        self.check(0, &self.connection.attach(&[request])?[0])
    }
}

/// A client that is a process, and is killed with a lease open or half-way.
pub struct Victim;

impl Victim {
    /// Whether cycle number `cycle` is one.
    pub fn is_due(cycle: usize) -> bool {
        cycle % KILL_EVERY == KILL_EVERY - 1
    }

    /// Runs `program` as a client and kills it, in turn while it asks and when it has its lease.
    ///
    /// # Errors
    /// It could not be run, or got no lease.
    pub fn kill(
        program: &Path,
        socket: &Path,
        files: &Files,
        mark: &str,
        cycle: usize,
    ) -> Result<()> {
        let mut child = Command::new(program)
            .arg("victim")
            .arg(socket)
            .arg(&files.images[cycle % files.images.len()].path)
            .arg(format!("{mark}-{cycle}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut expect = |word: &str| match lines.next() {
            Some(Ok(line)) if line == word => Ok(()),
            other => Err(anyhow!("the client said {other:?}, not {word}")),
        };
        let half_way = (cycle / KILL_EVERY).is_multiple_of(2);
        let said = expect("connected").and_then(|()| {
            child.stdin.as_mut().context("no input")?.write_all(b"\n")?;
            if half_way {
                return Ok(());
            }
            expect("attached")
        });
        child.kill()?;
        child.wait()?;
        said
    }
}

/// The process that [`Victim::kill`] kills: connects, waits for a line, attaches, waits.
///
/// # Errors
/// No lease was had.
pub fn victim(socket: &Path, file: &Path, name: &str) -> Result<()> {
    let connection = Connection::new(socket)?;
    println!("connected");
    let mut byte = [0];
    std::io::stdin().read_exact(&mut byte)?;
    let image = Image {
        path: file.to_owned(),
        offset: 0,
        length: 0,
    };
    let results = connection.attach(&[request(&image, name.to_owned())?])?;
    ensure!(results[0].device.is_some(), "{:?}", results[0].message);
    println!("attached");
    let _ = std::io::stdin().read_exact(&mut byte);
    Ok(())
}
