//! Payloads.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// `length` bytes that differ by seed and repeat nowhere (splitmix64).
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut state = seed;
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend((z ^ z >> 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes [`noise`] to `path`: a payload without a file system.
///
/// # Errors
/// What writing gave.
pub fn noise_payload(path: &Path, size: u64, seed: u64) -> io::Result<()> {
    fs::write(path, noise(size as usize, seed))
}

/// Makes an ext4 image of exactly `size` bytes (a multiple of 4096, at least 1 MiB) at `path`, as
/// AOSP's apexer does: no journal, 4096-byte blocks. Half of it is noise by `seed`, in `/data`;
/// `/seed` holds the seed in decimal. The same arguments give the same image.
///
/// # Errors
/// `NotFound` where mke2fs is not installed; `Other` with what it said where it fails.
pub fn ext4_payload(path: &Path, size: u64, seed: u64) -> io::Result<()> {
    let mut folder = path.as_os_str().to_owned();
    folder.push(".root");
    let folder = Path::new(&folder);
    let result = make_ext4(folder, path, size, seed);
    // The image is what was asked for; a folder that stays is not worth failing for.
    let _ = fs::remove_dir_all(folder);
    result
}

fn make_ext4(folder: &Path, path: &Path, size: u64, seed: u64) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("data"), noise(size as usize / 2, seed))?;
    fs::write(folder.join("seed"), seed.to_string())?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let uuid = format!("7061796c-6f61-4d00-8000-{:012x}", seed & 0xffff_ffff_ffff);
    let output = Command::new(mke2fs())
        .args(["-q", "-t", "ext4", "-O", "^has_journal", "-b", "4096"])
        .args(["-m", "0", "-I", "256", "-U", &uuid, "-E"])
        .arg(format!("hash_seed={uuid},root_owner=0:0"))
        .arg("-d")
        .arg(folder)
        .arg(path)
        .arg(format!("{}k", size / 1024))
        // mke2fs takes both clocks from here: the same image every time.
        .env("SOURCE_DATE_EPOCH", "1230768000")
        .env("E2FSPROGS_FAKE_TIME", "1230768000")
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("mke2fs: {}", said.trim())))
}

/// Ordinary users do not have sbin in PATH.
fn mke2fs() -> &'static str {
    let known = ["/usr/sbin/mke2fs", "/sbin/mke2fs"];
    let found = known.into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or("mke2fs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_differs_by_seed_and_has_the_length_asked_for() {
        assert_eq!(noise(4099, 7).len(), 4099);
        assert_eq!(noise(64, 7), noise(100, 7)[..64]);
        assert_ne!(noise(64, 7), noise(64, 8));
    }
}
