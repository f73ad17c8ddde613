//! The server side: hands out jobs, records everything it receives, and answers updates as a test wants.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use coder_domain::protocol;
use coder_provisioner::{ConnectError, ConnectFuture, Connector, Transport};
use coder_wire::bytes::BoxedStream;
use coder_wire::drpc::server::{CallStream, Event};
use coder_wire::drpc::{Error, Status};
use coder_wire::extension::Journal;
use coder_wire::extension::messages::{AttachRequest, HealthReport, ProgramReport, SlotsReport};
use coder_wire::file;
use coder_wire::messages::provisioner::file_upload::Type;
use coder_wire::messages::provisioner::{DataUploadType, FailedFile, FileUpload, VariableValue};
use coder_wire::messages::provisionerd as pb;
use coder_wire::mux::{self, Session};
use tokio::sync::{Notify, watch};

use crate::extensions::Extended;

/// Everything that a daemon has sent.
#[derive(Default, Clone)]
pub(crate) struct Record {
    pub(crate) acquires: usize,
    pub(crate) acquires_canceled: usize,
    pub(crate) updates: Vec<pb::UpdateJobRequest>,
    pub(crate) quotas: Vec<pb::CommitQuotaRequest>,
    pub(crate) uploads: Vec<Bytes>,
    pub(crate) downloads: usize,
    pub(crate) failed: Vec<pb::FailedJob>,
    pub(crate) completed: Vec<pb::CompletedJob>,
    /// What arrived while the server did not answer.
    pub(crate) unanswered: Vec<pb::CompletedJob>,
    pub(crate) attaches: Vec<AttachRequest>,
    forgets: bool,
    /// Bytes of lines that were received and dropped.
    pub(crate) forgotten: usize,
    /// Lines with sequence numbers; they are in `updates` too.
    pub(crate) numbered: usize,
    pub(crate) journals: Vec<Journal>,
    pub(crate) salvages: Vec<Journal>,
    pub(crate) slots: Vec<SlotsReport>,
    pub(crate) programs: Vec<ProgramReport>,
    pub(crate) health: Vec<HealthReport>,
}

impl Record {
    pub(crate) fn update(&mut self, request: pb::UpdateJobRequest) {
        if self.forgets {
            self.forgotten += request.logs.iter().map(|line| line.output.len()).sum::<usize>();
        } else {
            self.updates.push(request);
        }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &pb::Log> {
        self.updates.iter().flat_map(|update| &update.logs)
    }

    pub(crate) fn has_line(&self, text: &str) -> bool {
        self.lines().any(|line| line.output.contains(text))
    }

    /// Stage names in the order of their first line.
    pub(crate) fn stages(&self) -> Vec<&str> {
        let mut stages: Vec<&str> = Vec::new();
        for line in self.lines() {
            if !stages.contains(&line.stage.as_str()) {
                stages.push(&line.stage);
            }
        }
        stages
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.failed.is_empty() || !self.completed.is_empty()
    }
}

/// The answer to an UpdateJob.
pub(crate) enum Answer {
    Ok(pb::UpdateJobResponse),
    Error(&'static str),
    /// The stream is closed without an answer.
    Close,
    /// The session is cut.
    Cut,
}

impl Answer {
    pub(crate) fn canceled() -> Self {
        Answer::Ok(pb::UpdateJobResponse { canceled: true, ..pb::UpdateJobResponse::default() })
    }
}

type Script = Box<dyn FnMut(&pb::UpdateJobRequest) -> Option<Answer> + Send>;

#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    jobs: Mutex<VecDeque<pb::AcquiredJob>>,
    arrived: Notify,
    record: watch::Sender<Record>,
    script: Mutex<Script>,
    quota: Mutex<pb::CommitQuotaResponse>,
    module_files: Mutex<Option<Bytes>>,
    /// Sent literally instead of the files.
    module_pieces: Mutex<Option<Vec<FileUpload>>>,
    complete_error: Mutex<Option<&'static str>>,
    keeps_silent: AtomicBool,
    /// A job that is handed out only when an acquire is canceled.
    late_job: Mutex<Option<pb::AcquiredJob>>,
    sessions: Mutex<Vec<Session>>,
    connects: AtomicUsize,
    down: AtomicBool,
    refusal: Mutex<Option<ConnectError>>,
    extended: Extended,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            jobs: Mutex::default(),
            arrived: Notify::new(),
            record: watch::Sender::default(),
            script: Mutex::new(Box::new(|_| None)),
            quota: Mutex::new(pb::CommitQuotaResponse { ok: true, credits_consumed: 0, budget: -1 }),
            module_files: Mutex::default(),
            module_pieces: Mutex::default(),
            complete_error: Mutex::default(),
            keeps_silent: AtomicBool::new(false),
            late_job: Mutex::default(),
            sessions: Mutex::default(),
            connects: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            refusal: Mutex::default(),
            extended: Extended::default(),
        }))
    }

    pub(crate) fn extended(&self) -> &Extended {
        &self.0.extended
    }

    pub(crate) fn give(&self, job: pb::AcquiredJob) {
        self.0.jobs.lock().unwrap().push_back(job);
        self.0.arrived.notify_one();
    }

    pub(crate) fn give_on_cancel(&self, job: pb::AcquiredJob) {
        *self.0.late_job.lock().unwrap() = Some(job);
    }

    /// Chooses the answer to updates; `None` gives the ordinary one.
    pub(crate) fn script(
        &self,
        script: impl FnMut(&pb::UpdateJobRequest) -> Option<Answer> + Send + 'static,
    ) {
        *self.0.script.lock().unwrap() = Box::new(script);
    }

    /// Only counts the bytes of lines, for output that is too long to keep.
    pub(crate) fn forget_lines(&self) {
        self.0.record.send_modify(|record| record.forgets = true);
    }

    pub(crate) fn set_quota(&self, quota: pb::CommitQuotaResponse) {
        *self.0.quota.lock().unwrap() = quota;
    }

    pub(crate) fn set_module_pieces(&self, pieces: Vec<FileUpload>) {
        *self.0.module_pieces.lock().unwrap() = Some(pieces);
    }

    pub(crate) fn set_module_files(&self, files: Bytes) {
        *self.0.module_files.lock().unwrap() = Some(files);
    }

    pub(crate) fn refuse_completion(&self, error: &'static str) {
        *self.0.complete_error.lock().unwrap() = Some(error);
    }

    /// From now on results of jobs get no answer.
    pub(crate) fn keep_silent(&self) {
        self.0.keeps_silent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn refuse_connections(&self, error: Option<ConnectError>) {
        *self.0.refusal.lock().unwrap() = error;
    }

    pub(crate) fn connects(&self) -> usize {
        self.0.connects.load(Ordering::SeqCst)
    }

    /// Ends every session and accepts no new one.
    pub(crate) async fn go_down(&self) {
        self.0.down.store(true, Ordering::SeqCst);
        self.cut().await;
    }

    pub(crate) fn come_back(&self) {
        self.0.down.store(false, Ordering::SeqCst);
    }

    pub(crate) async fn cut(&self) {
        let sessions = std::mem::take(&mut *self.0.sessions.lock().unwrap());
        for session in sessions {
            session.close().await;
        }
    }

    pub(crate) fn record(&self) -> Record {
        self.0.record.borrow().clone()
    }

    /// Waits until the record is as wanted.
    pub(crate) async fn wait_for(&self, what: &str, wanted: impl FnMut(&Record) -> bool) -> Record {
        self.wait_for_long(what, Duration::from_secs(60), wanted).await
    }

    /// The same with a longer limit.
    pub(crate) async fn wait_for_long(
        &self,
        what: &str,
        read_timeout: Duration,
        wanted: impl FnMut(&Record) -> bool,
    ) -> Record {
        let mut receiver = self.0.record.subscribe();
        let waiting = tokio::time::timeout(read_timeout, receiver.wait_for(wanted));
        let found = waiting.await.map(|record| record.unwrap().clone());
        found.unwrap_or_else(|_| {
            let record = self.record();
            let lines: Vec<_> =
                record.lines().map(|line| format!("[{}] {}", line.stage, line.output)).collect();
            panic!("{what} did not happen; failed {:?}; log:\n{}", record.failed, lines.join("\n"));
        })
    }

    /// Waits for the end of the job, and expects success.
    pub(crate) async fn completed(&self) -> (Record, pb::completed_job::Type) {
        let record = self.wait_for("the end of the job", Record::is_over).await;
        assert!(record.failed.is_empty(), "the job failed: {:?}", record.failed);
        let result = record.completed[0].r#type.clone().unwrap();
        (record, result)
    }

    /// Waits for the end of the job, and expects a failure.
    pub(crate) async fn failed(&self) -> (Record, pb::FailedJob) {
        let record = self.wait_for("the end of the job", Record::is_over).await;
        assert!(record.completed.is_empty(), "the job succeeded");
        let failed = record.failed[0].clone();
        (record, failed)
    }
}

impl Server {
    /// Serves a connected daemon over any stream.
    pub(crate) fn serve(&self, stream: impl coder_wire::bytes::ByteStream) {
        let session = Session::server(stream, mux::Config::default());
        self.0.sessions.lock().unwrap().push(session.clone());
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok(stream) = session.accept().await {
                let calls = Calls(Arc::clone(&inner));
                tokio::spawn(async move {
                    let mut exchange = CallStream::new(Box::new(stream));
                    while let Ok(Some(method)) = exchange.next().await {
                        // Calls end early in many tests; the daemon's reaction matters.
                        let _ = calls.call(&method, &mut exchange).await;
                    }
                });
            }
        });
    }
}

impl Connector for Server {
    fn connect(&self) -> ConnectFuture<'_> {
        Box::pin(async {
            self.0.connects.fetch_add(1, Ordering::SeqCst);
            if let Some(error) = self.0.refusal.lock().unwrap().clone() {
                return Err(error);
            }
            if self.0.down.load(Ordering::SeqCst) {
                return Err(ConnectError::Retry("connection refused".to_owned()));
            }
            let (ours, theirs) = tokio::io::duplex(256 * 1024);
            self.serve(ours);
            let stream: BoxedStream = Box::new(theirs);
            let extensions = self.0.extended.granted();
            Ok(Transport { stream, extensions, protocol: protocol::CURRENT })
        })
    }
}

struct Calls(Arc<Inner>);

impl Calls {
    async fn call(&self, method: &str, call: &mut CallStream) -> Result<(), Error> {
        match method.rsplit('/').next().unwrap() {
            "AcquireJobWithCancel" => self.acquire(call).await,
            "UpdateJob" => self.update(call).await,
            "CommitQuota" => {
                let request: pb::CommitQuotaRequest = request(call).await?;
                self.0.record.send_modify(|record| record.quotas.push(request));
                let answer = *self.0.quota.lock().unwrap();
                answer_with(call, &answer).await
            }
            "FailJob" => {
                let request: pb::FailedJob = request(call).await?;
                self.0.record.send_modify(|record| record.failed.push(request));
                answer_with(call, &pb::Empty {}).await
            }
            "CompleteJob" => {
                let request: pb::CompletedJob = request(call).await?;
                if self.0.keeps_silent.load(Ordering::Relaxed) {
                    self.0.record.send_modify(|record| record.unanswered.push(request));
                    return std::future::pending().await;
                }
                let refusal = *self.0.complete_error.lock().unwrap();
                if let Some(error) = refusal {
                    return call.fail(&Status::new(error)).await;
                }
                self.0.record.send_modify(|record| record.completed.push(request));
                answer_with(call, &pb::Empty {}).await
            }
            "UploadFile" => {
                let mut receiver = file::Receiver::new(file::MAX_SIZE);
                let file = loop {
                    let message: FileUpload = request(call).await?;
                    if let Some(file) = receiver.take(message).unwrap() {
                        break file;
                    }
                };
                self.0.record.send_modify(|record| record.uploads.push(file.data));
                answer_with(call, &pb::Empty {}).await
            }
            "DownloadFile" => {
                let _: pb::FileRequest = request(call).await?;
                self.0.record.send_modify(|record| record.downloads += 1);
                let files = self.0.module_files.lock().unwrap().clone();
                let pieces = self.0.module_pieces.lock().unwrap().clone();
                let messages: Vec<FileUpload> = match files {
                    _ if pieces.is_some() => pieces.unwrap_or_default(),
                    Some(files) => {
                        file::to_messages(DataUploadType::UploadTypeModuleFiles, files).unwrap().collect()
                    }
                    None => vec![FileUpload {
                        r#type: Some(Type::Error(FailedFile { error: "no such file".to_owned() })),
                    }],
                };
                for message in messages {
                    call.send(&message).await?;
                }
                call.close_send().await
            }
            other => {
                let known = self.0.extended.call(other, call, &self.0.record).await?;
                assert!(known, "unexpected call {other}");
                Ok(())
            }
        }
    }

    async fn acquire(&self, call: &mut CallStream) -> Result<(), Error> {
        self.0.record.send_modify(|record| record.acquires += 1);
        let job = loop {
            let waiting = self.0.jobs.lock().unwrap().pop_front();
            if let Some(job) = waiting {
                break job;
            }
            let event = tokio::select! {
                () = self.0.arrived.notified() => continue,
                event = call.recv() => event?,
            };
            if let Event::Message(_) = event {
                self.0.record.send_modify(|record| record.acquires_canceled += 1);
                break self.0.late_job.lock().unwrap().take().unwrap_or_default();
            }
            return Ok(());
        };
        call.send(&job).await?;
        call.close().await
    }

    async fn update(&self, call: &mut CallStream) -> Result<(), Error> {
        let request: pb::UpdateJobRequest = request(call).await?;
        let scripted = (self.0.script.lock().unwrap())(&request);
        let answer = scripted.unwrap_or_else(|| ordinary(&request));
        if matches!(answer, Answer::Ok(_)) {
            self.0.record.send_modify(|record| record.update(request));
        }
        match answer {
            Answer::Ok(response) => answer_with(call, &response).await,
            Answer::Error(text) => call.fail(&Status::new(text)).await,
            Answer::Close => call.close().await,
            Answer::Cut => {
                let sessions = std::mem::take(&mut *self.0.sessions.lock().unwrap());
                for session in sessions {
                    session.close().await;
                }
                Ok(())
            }
        }
    }
}

pub(crate) async fn request<M: coder_wire::elements::Request>(call: &mut CallStream) -> Result<M, Error> {
    call.request().await?.ok_or(Error::NoAnswer)
}

pub(crate) async fn answer_with(call: &mut CallStream, message: &impl prost::Message) -> Result<(), Error> {
    call.send(message).await?;
    call.close_send().await
}

/// What a server returns for parsed variables (wire-protocol 5.5).
fn ordinary(request: &pb::UpdateJobRequest) -> Answer {
    let mut variable_values = Vec::new();
    for variable in &request.template_variables {
        let given = request.user_variable_values.iter().find(|value| value.name == variable.name);
        let value = given.map_or_else(|| variable.default_value.clone(), |value| value.value.clone());
        if variable.required && value.is_empty() {
            return Answer::Error("required template variables need values: more words");
        }
        variable_values.push(VariableValue {
            name: variable.name.clone(),
            value,
            sensitive: variable.sensitive,
        });
    }
    Answer::Ok(pb::UpdateJobResponse { canceled: false, variable_values })
}
