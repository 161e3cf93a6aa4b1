//! `dumpsys`: what each service shows of itself, and that it waits for nobody.

use crate::case::{Case, Outcome};
use crate::reset::layout::{machine, plain};
use crate::reset::wrapped::Wrapped;
use blockd::device::{Storage, Sysfs};
use blockd::images::Images;
use blockd::reset::request::Request;
use blockd::reset::Reset;
use blockd::service::access::{Gate, Interface as Which};
use blockd::service::diagnostics::DiagnosticsService;
use blockd::service::images::ImageService;
use blockd::service::ipc::Interface;
use blockd::service::last_report::LastReport;
use blockd::service::reset::ResetService;
use emmc::card::{Config, Timing};
use emmc::machine::{Kernel, Machine};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "diagnostics::dump_answers_while_the_card_erases",
            while_erasing,
        ),
        Case::new("diagnostics::dump_sends_nothing_to_the_card", sends_nothing),
        Case::new("diagnostics::dump_is_json_where_it_is_asked_for", json),
    ]
}

fn gate(which: Which) -> Gate {
    Gate::new(which, &[], &[])
}

fn dump(service: &dyn Interface, arguments: &[&str]) -> Result<String, String> {
    let mut text = Vec::new();
    let words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    service
        .dump(&mut text, &words)
        .map_err(|code| format!("{code:?}"))?;
    String::from_utf8(text).map_err(|e| e.to_string())
}

fn dump_json(service: &dyn Interface) -> Result<Value, String> {
    serde_json::from_str(&dump(service, &["--json"])?).map_err(|e| e.to_string())
}

fn reset_service(reset: Arc<Reset>) -> ResetService {
    ResetService::new(gate(Which::Reset), reset, LastReport::open(None))
}

/// The dumps come from another thread while the erasing one stands in the middle of the erase: had one
/// of them to wait for the run, the run would wait for it, and neither ended.
fn while_erasing() -> Outcome {
    let timing = Timing {
        erase_us: 14_000_000,
        ..Timing::zero()
    };
    let machine = machine(Config { timing, ..plain() });
    // A kernel that does not wait for the card: the run polls, and can be looked at.
    machine.set_kernel(Kernel::V4_14);
    let services: Arc<OnceLock<Vec<Arc<dyn Interface>>>> = Arc::default();
    let seen: Arc<Mutex<Vec<Result<String, String>>>> = Arc::default();
    let (who, kept, once) = (
        Arc::clone(&services),
        Arc::clone(&seen),
        AtomicBool::new(false),
    );
    let card = machine.clone();
    let storage = Wrapped::new(&machine).on_sleep(Box::new(move || {
        let Some(services) = who.get() else { return };
        let erasing = card.with_card(|card| card.busy_until().is_some());
        if !erasing || once.swap(true, Ordering::Relaxed) {
            return;
        }
        for service in services {
            let (answer, answered) = mpsc::channel();
            let service = Arc::clone(service);
            std::thread::spawn(move || {
                let _ = answer.send(dump(service.as_ref(), &[]));
            });
            // Virtual time stands still: a dump that waited for the run would never answer.
            let text = answered
                .recv_timeout(Duration::from_secs(20))
                .unwrap_or_else(|_| Err("the dump waits for the run".to_owned()));
            kept.lock().expect("no panic").push(text);
        }
        assert!(
            card.with_card(|card| card.busy_until().is_some()),
            "still erasing"
        );
    }));
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let reset = Arc::new(Reset::new(Arc::clone(&storage)));
    let diagnostics = DiagnosticsService::new(gate(Which::Diagnostics), storage);
    let shown: Vec<Arc<dyn Interface>> = vec![
        Arc::new(reset_service(Arc::clone(&reset))),
        Arc::new(diagnostics),
        Arc::new(ImageService::new(
            gate(Which::Images),
            Arc::new(Images::new()),
        )),
    ];
    let _ = services.set(shown);
    let request = Request {
        marker: blockd::reset::request::Marker::None,
        ..Request::new(&["userdata"])
    };
    reset.run(&request, None).map_err(|e| e.to_string())?;
    let seen = seen.lock().map_err(|e| e.to_string())?;
    let [reset, diagnostics, images] = seen.as_slice() else {
        return Err(format!("the card was never seen erasing: {seen:?}"));
    };
    let reset = reset.as_ref()?;
    assert!(reset.contains("state: running, step erase"), "{reset}");
    assert!(reset.contains("userdata"), "{reset}");
    assert!(reset.contains("last report: none"), "{reset}");
    let diagnostics = diagnostics.as_ref()?;
    assert!(diagnostics.contains("mmc: ok: mmcblk0"), "{diagnostics}");
    let images = images.as_ref()?;
    assert!(
        images.starts_with("dev.blockd.IImageDevices/default"),
        "{images}"
    );
    Ok(())
}

fn sends_nothing() -> Outcome {
    let machine: Machine = machine(plain());
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let reset = reset_service(Arc::new(Reset::new(Arc::clone(&storage))));
    let diagnostics = DiagnosticsService::new(gate(Which::Diagnostics), storage);
    let before = machine.log().counters;
    dump(&reset, &[])?;
    dump(&diagnostics, &[])?;
    dump(&diagnostics, &["--json"])?;
    assert_eq!(machine.log().counters, before);
    assert_eq!(machine.log().count(8), 0);
    let files: &dyn Sysfs = machine.sysfs();
    assert!(files.exists("/sys/block/mmcblk0"));
    Ok(())
}

fn json() -> Outcome {
    let machine = machine(plain());
    let storage: Arc<dyn Storage> = Arc::new(machine);
    let reset = reset_service(Arc::new(Reset::new(Arc::clone(&storage))));
    let value = dump_json(&reset)?;
    assert_eq!(value["state"], "idle");
    assert_eq!(value["service"], "dev.blockd.IFactoryReset/default");
    assert!(value["last_report"].is_null());
    let request = crate::served::request("userdata");
    use blockd::aidl::IFactoryReset::IFactoryReset;
    let report = reset.run(&request, None).map_err(|e| format!("{e:?}"))?;
    let value = dump_json(&reset)?;
    assert_eq!(value["state"], "done");
    assert_eq!(value["last_report"]["token"], report.token.as_str());
    assert_eq!(value["calls"]["let_through"], 1);
    assert_eq!(value["calls"]["refused"], 0);
    let text = dump(&reset, &["-a"])?;
    assert!(
        text.contains(&format!("last report: run {}", report.token)),
        "{text}"
    );
    for step in &report.plan.steps {
        assert!(text.contains(step.as_str()), "{step}\n{text}");
    }
    let diagnostics = DiagnosticsService::new(gate(Which::Diagnostics), storage);
    let value = dump_json(&diagnostics)?;
    assert!(value["findings"]
        .as_array()
        .is_some_and(|list| list.len() >= 3));
    let images = ImageService::new(gate(Which::Images), Arc::new(Images::new()));
    assert!(dump_json(&images)?.get("devices").is_some());
    let wrong = dump(&reset, &["--everything"])?;
    assert_eq!(wrong, "usage: dumpsys NAME [--json]\n");
    Ok(())
}
