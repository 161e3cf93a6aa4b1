//! `IFactoryReset`: authorise, convert, call the use case, map errors.

use crate::aidl::IFactoryReset::IFactoryReset;
use crate::aidl::IProgress::IProgress;
use crate::aidl::ResetPlan::ResetPlan;
use crate::aidl::ResetReport::ResetReport;
use crate::aidl::ResetRequest::ResetRequest;
use crate::aidl::ResetStatus::ResetStatus;
use crate::reset::board::Status;
use crate::reset::{Observer, Reset};
use crate::service::access::Gate;
use crate::service::convert;
use crate::service::dump;
use crate::service::error::answer;
use crate::service::ipc::{
    BinderResult, DumpArg, DumpWriter, Interface, ParcelFileDescriptor, StatusCode, Strong,
};
use crate::service::last_report::LastReport;
use std::sync::Arc;

/// The service.
pub struct ResetService {
    gate: Gate,
    reset: Arc<Reset>,
    last: LastReport,
}

impl ResetService {
    /// Serves `reset` to those that `gate` lets through; `last` is kept up to date.
    pub fn new(gate: Gate, reset: Arc<Reset>, last: LastReport) -> ResetService {
        ResetService { gate, reset, last }
    }
}

impl Interface for ResetService {
    fn dump(&self, writer: DumpWriter<'_>, arguments: &[DumpArg<'_>]) -> Result<(), StatusCode> {
        dump::answer(&self.gate, writer, arguments, || {
            dump::reset(&self.reset.status(), &self.last.peek())
        })
    }
}

impl IFactoryReset for ResetService {
    fn plan(&self, request: &ResetRequest) -> BinderResult<ResetPlan> {
        self.gate.check("plan")?;
        let plan = convert::request(request).and_then(|request| self.reset.plan(&request));
        answer("plan", plan.map(|plan| convert::plan(&plan)))
    }

    fn run(
        &self,
        request: &ResetRequest,
        progress: Option<&Strong<dyn IProgress>>,
    ) -> BinderResult<ResetReport> {
        self.gate.check("run")?;
        let observer = progress.map(observer);
        let report = convert::request(request).and_then(|request| {
            self.reset.run_then(&request, observer, |ended| {
                if let Some(incomplete) = &ended.incomplete {
                    self.last.put(&mut convert::report(incomplete));
                }
                let mut report = convert::report(&ended.result?);
                self.last.put(&mut report);
                Ok(report)
            })
        });
        answer("run", report)
    }

    fn finish(&self, token: &str, file: Option<&ParcelFileDescriptor>) -> BinderResult<()> {
        self.gate.check("finish")?;
        let file = file.map(convert::marker_file).transpose();
        let finished = file.and_then(|file| self.reset.finish(token, file.as_ref()));
        answer("finish", finished)
    }

    fn status(&self) -> BinderResult<ResetStatus> {
        self.gate.check("status")?;
        // Looking claims nothing: it disturbs no run that holds misc.
        let present = self.reset.marker_present().unwrap_or(false);
        Ok(convert::status(&self.reset.status(), present))
    }

    fn cancel(&self) -> BinderResult<()> {
        self.gate.check("cancel")?;
        self.reset.cancel();
        Ok(())
    }

    fn lastReport(&self) -> BinderResult<Option<ResetReport>> {
        self.gate.check("lastReport")?;
        Ok(self.last.get())
    }
}

/// Passes progress on until the client has died; it runs on the progress thread, so that a client
/// that is stopped blocks nothing else.
fn observer(progress: &Strong<dyn IProgress>) -> Observer {
    let progress = progress.clone();
    let mut gone = false;
    Box::new(move |status: &Status| {
        if gone {
            return;
        }
        let number = |n: Option<u64>| n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
        let told = progress.onProgress(
            status.step.map_or("", |step| step.name()),
            status.elapsed.as_millis() as i64,
            number(status.extent.done),
            number(status.extent.total),
            number(status.extent.limit.map(|limit| limit.as_millis() as u64)),
        );
        if let Err(error) = told {
            log::info!("progress: the client is gone, the reset goes on: {error:?}");
            gone = true;
        }
    })
}
