//! `IDiagnostics`.

use crate::aidl;
use crate::aidl::IDiagnostics::IDiagnostics;
use crate::aidl::IProgress::IProgress;
use crate::cache;
use crate::cache::fua::Measurements;
use crate::device::Storage;
use crate::diagnostics::card::{self, Card};
use crate::diagnostics::doctor;
use crate::service::access::Gate;
use crate::service::convert;
use crate::service::dump;
use crate::service::error::answer;
use crate::service::fua;
use crate::service::ipc::{BinderResult, DumpArg, DumpWriter, Interface, StatusCode, Strong};
use std::sync::Arc;

/// The service.
pub struct DiagnosticsService {
    gate: Gate,
    storage: Arc<dyn Storage>,
    measurements: Measurements,
}

impl DiagnosticsService {
    /// Looks at `storage` for those that `gate` lets through.
    pub fn new(gate: Gate, storage: Arc<dyn Storage>) -> DiagnosticsService {
        DiagnosticsService {
            gate,
            storage,
            measurements: Measurements::new(),
        }
    }
}

fn card_facts(card: &Card) -> aidl::CardFacts::CardFacts {
    aidl::CardFacts::CardFacts {
        disk: card.disk.clone(),
        facts: card.facts.iter().map(convert::fact).collect(),
        extCsd: card
            .ext_csd
            .as_ref()
            .map_or(Vec::new(), |csd| csd.0.to_vec()),
    }
}

fn cache_facts(facts: &cache::facts::Facts) -> aidl::CacheFacts::CacheFacts {
    let judgement = cache::facts::judge(facts);
    aidl::CacheFacts::CacheFacts {
        disk: facts.disk.clone(),
        facts: facts.named().iter().map(convert::fact).collect(),
        verdict: judgement.verdict.name().to_owned(),
        reasons: judgement.reasons,
    }
}

impl Interface for DiagnosticsService {
    fn dump(&self, writer: DumpWriter<'_>, arguments: &[DumpArg<'_>]) -> Result<(), StatusCode> {
        dump::answer(&self.gate, writer, arguments, || {
            dump::diagnostics(self.storage.sysfs())
        })
    }
}

impl IDiagnostics for DiagnosticsService {
    fn card(&self, disk: Option<&str>) -> BinderResult<aidl::CardFacts::CardFacts> {
        self.gate.check("card")?;
        let card = card::look(self.storage.as_ref(), disk);
        answer("card", card.map(|card| card_facts(&card)))
    }

    fn cache(&self, disk: Option<&str>) -> BinderResult<aidl::CacheFacts::CacheFacts> {
        self.gate.check("cache")?;
        let facts = cache::facts::Facts::gather(self.storage.as_ref(), disk);
        answer("cache", facts.map(|facts| cache_facts(&facts)))
    }

    fn measureFua(
        &self,
        request: &aidl::FuaRequest::FuaRequest,
        progress: Option<&Strong<dyn IProgress>>,
    ) -> BinderResult<aidl::FuaReport::FuaReport> {
        self.gate.check("measureFua")?;
        let report = fua::request(request).and_then(|(file, request)| {
            self.measurements.measure(
                self.storage.sysfs(),
                file,
                &request,
                progress.map(fua::observer),
            )
        });
        answer("measureFua", report.map(|report| fua::report(&report)))
    }

    fn doctor(&self) -> BinderResult<Vec<aidl::Finding::Finding>> {
        self.gate.check("doctor")?;
        let findings = doctor(self.storage.as_ref());
        Ok(findings
            .iter()
            .map(|finding| aidl::Finding::Finding {
                topic: finding.topic.to_owned(),
                severity: aidl::Severity::Severity(finding.severity as i32),
                text: finding.text.clone(),
                evidence: finding.evidence.clone(),
                remedy: finding.remedy.clone(),
            })
            .collect())
    }
}
