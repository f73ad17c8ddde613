//! Counts the elements of a message before it is decoded: an empty element takes two bytes on the wire and hundreds in
//! memory.

use prost::Message;

use crate::messages::coder::agent::v2 as agent;
use crate::messages::provisioner as pb;
use crate::messages::provisionerd as pd;
use crate::messages::provisionerext::v1 as ext;

/// Most elements of one message. Four MiB of real log lines have fewer.
pub const MAX_ELEMENTS: usize = 100_000;

/// The fields of a message that can hold many elements, by their numbers, each with the fields of its own message.
pub(crate) struct RepeatedFields(&'static [(u64, &'static RepeatedFields)]);

const PLAIN: &RepeatedFields = &RepeatedFields(&[]);
const SCHEDULING: &RepeatedFields = &RepeatedFields(&[(2, PLAIN)]);
const PREBUILD: &RepeatedFields = &RepeatedFields(&[(3, SCHEDULING)]);
const PRESET: &RepeatedFields = &RepeatedFields(&[(2, PLAIN), (3, PREBUILD)]);
const PARAMETER: &RepeatedFields = &RepeatedFields(&[(7, PLAIN)]);
const REPLACEMENT: &RepeatedFields = &RepeatedFields(&[(2, PLAIN)]);
const MONITORING: &RepeatedFields = &RepeatedFields(&[(2, PLAIN)]);
const AGENT: &RepeatedFields = &RepeatedFields(&[
    (3, PLAIN),
    (8, PLAIN),
    (18, PLAIN),
    (21, PLAIN),
    (22, PLAIN),
    (24, MONITORING),
    (25, PLAIN),
]);
const RESOURCE: &RepeatedFields = &RepeatedFields(&[(3, AGENT), (4, PLAIN)]);
const FAILED_BUILD: &RepeatedFields = &RepeatedFields(&[(2, PLAIN)]);
const FAILED: &RepeatedFields = &RepeatedFields(&[(3, FAILED_BUILD)]);
const BUILT: &RepeatedFields =
    &RepeatedFields(&[(2, RESOURCE), (3, PLAIN), (4, PLAIN), (5, REPLACEMENT), (6, PLAIN)]);
const IMPORTED: &RepeatedFields = &RepeatedFields(&[
    (1, RESOURCE),
    (2, RESOURCE),
    (3, PARAMETER),
    (4, PLAIN),
    (5, PLAIN),
    (6, PLAIN),
    (7, PLAIN),
    (8, PRESET),
]);
const DRY_RUN: &RepeatedFields = &RepeatedFields(&[(1, RESOURCE), (2, PLAIN)]);
const COMPLETED: &RepeatedFields = &RepeatedFields(&[(2, BUILT), (3, IMPORTED), (4, DRY_RUN)]);
const UPDATE: &RepeatedFields = &RepeatedFields(&[(2, PLAIN), (4, PLAIN), (5, PLAIN), (7, PLAIN)]);
const ATTACH: &RepeatedFields = &RepeatedFields(&[(2, PLAIN)]);
const LOGS: &RepeatedFields = &RepeatedFields(&[(4, PLAIN)]);
const METRIC: &RepeatedFields = &RepeatedFields(&[(4, PLAIN)]);
const STATS: &RepeatedFields = &RepeatedFields(&[(1, PLAIN), (12, METRIC)]);
const STATS_REPORT: &RepeatedFields = &RepeatedFields(&[(1, STATS)]);
const STARTUP: &RepeatedFields = &RepeatedFields(&[(3, PLAIN)]);
const STARTUP_REPORT: &RepeatedFields = &RepeatedFields(&[(1, STARTUP)]);
const FIRST: &RepeatedFields = &RepeatedFields(&[(1, PLAIN)]);
const SECOND: &RepeatedFields = &RepeatedFields(&[(2, PLAIN)]);
const DATAPOINT: &RepeatedFields = &RepeatedFields(&[(3, PLAIN)]);
const RESOURCE_USAGE: &RepeatedFields = &RepeatedFields(&[(1, DATAPOINT)]);
const SUB_AGENT: &RepeatedFields = &RepeatedFields(&[(5, PLAIN), (6, PLAIN)]);

/// A message that daemons and agents send.
pub trait Request: Message + Default {
    /// Full name of the message, and its repeated fields.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "requests are known here only")]
    const REPEATED: (&'static str, &'static RepeatedFields);
}

macro_rules! requests {
    ($($request:ty, $name:literal => $repeated:expr;)*) => {
        $(impl Request for $request {
            #[expect(private_interfaces, reason = "requests are known here only")]
            const REPEATED: (&'static str, &'static RepeatedFields) = ($name, $repeated);
        })*

        #[cfg(test)]
        const ALL: &[(&str, &RepeatedFields)] = &[$(<$request as Request>::REPEATED),*];
    };
}

requests! {
    pd::CommitQuotaRequest, "provisionerd.CommitQuotaRequest" => PLAIN;
    pd::UpdateJobRequest, "provisionerd.UpdateJobRequest" => UPDATE;
    pd::FailedJob, "provisionerd.FailedJob" => FAILED;
    pd::CompletedJob, "provisionerd.CompletedJob" => COMPLETED;
    pd::FileRequest, "provisionerd.FileRequest" => PLAIN;
    pb::FileUpload, "provisioner.FileUpload" => PLAIN;
    ext::AttachRequest, "provisionerext.v1.AttachRequest" => ATTACH;
    ext::HoldRequest, "provisionerext.v1.HoldRequest" => PLAIN;
    ext::LogsRequest, "provisionerext.v1.LogsRequest" => LOGS;
    ext::JournalPiece, "provisionerext.v1.JournalPiece" => PLAIN;
    ext::SlotsReport, "provisionerext.v1.SlotsReport" => PLAIN;
    ext::ProgramReport, "provisionerext.v1.ProgramReport" => PLAIN;
    ext::HealthReport, "provisionerext.v1.HealthReport" => PLAIN;
    ext::NotificationsRequest, "provisionerext.v1.NotificationsRequest" => PLAIN;
    agent::GetManifestRequest, "coder.agent.v2.GetManifestRequest" => PLAIN;
    agent::GetServiceBannerRequest, "coder.agent.v2.GetServiceBannerRequest" => PLAIN;
    agent::GetAnnouncementBannersRequest, "coder.agent.v2.GetAnnouncementBannersRequest" => PLAIN;
    agent::UpdateStartupRequest, "coder.agent.v2.UpdateStartupRequest" => STARTUP_REPORT;
    agent::UpdateLifecycleRequest, "coder.agent.v2.UpdateLifecycleRequest" => PLAIN;
    agent::UpdateStatsRequest, "coder.agent.v2.UpdateStatsRequest" => STATS_REPORT;
    agent::BatchUpdateAppHealthRequest, "coder.agent.v2.BatchUpdateAppHealthRequest" => FIRST;
    agent::BatchUpdateMetadataRequest, "coder.agent.v2.BatchUpdateMetadataRequest" => SECOND;
    agent::BatchCreateLogsRequest, "coder.agent.v2.BatchCreateLogsRequest" => SECOND;
    agent::WorkspaceAgentScriptCompletedRequest, "coder.agent.v2.WorkspaceAgentScriptCompletedRequest" => PLAIN;
    agent::GetResourcesMonitoringConfigurationRequest,
        "coder.agent.v2.GetResourcesMonitoringConfigurationRequest" => PLAIN;
    agent::PushResourcesMonitoringUsageRequest,
        "coder.agent.v2.PushResourcesMonitoringUsageRequest" => RESOURCE_USAGE;
    agent::ReportConnectionRequest, "coder.agent.v2.ReportConnectionRequest" => PLAIN;
    agent::CreateSubAgentRequest, "coder.agent.v2.CreateSubAgentRequest" => SUB_AGENT;
    agent::DeleteSubAgentRequest, "coder.agent.v2.DeleteSubAgentRequest" => PLAIN;
    agent::ListSubAgentsRequest, "coder.agent.v2.ListSubAgentsRequest" => PLAIN;
    agent::ReportBoundaryLogsRequest, "coder.agent.v2.ReportBoundaryLogsRequest" => FIRST;
}

/// The number of elements of an encoded request. For a request that does not decode it is any number.
pub(crate) fn count<R: Request>(data: &[u8]) -> usize {
    count_elements(data, R::REPEATED.1)
}

fn count_elements(mut data: &[u8], repeated: &RepeatedFields) -> usize {
    let mut found = 0;
    while !repeated.0.is_empty()
        && let Some((number, content)) = field(&mut data)
    {
        if let Some(content) = content
            && let Some((_, inner)) = repeated.0.iter().find(|(known, _)| *known == number)
        {
            found += 1 + count_elements(content, inner);
        }
    }
    found
}

/// The next field: its number, and its content when it has a length. None at the end, and for malformed bytes.
fn field<'a>(data: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = varint(data)?;
    let skip = match key & 7 {
        0 => {
            varint(data)?;
            return Some((key >> 3, None));
        }
        1 => 8,
        2 => usize::try_from(varint(data)?).ok()?,
        5 => 4,
        // Groups are in no message; the decoder skips what is unknown, and so need not be followed.
        3 | 4 => 0,
        _ => return None,
    };
    let (content, rest) = data.split_at_checked(skip)?;
    *data = rest;
    Some((key >> 3, (key & 7 == 2).then_some(content)))
}

fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (index, byte) in data.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *data = &data[index + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

    use super::*;

    /// Whether a message can hold many elements, itself or in its fields.
    fn holds_many(message: &MessageDescriptor) -> bool {
        message.fields().any(|field| match field.kind() {
            _ if field.is_list() || field.is_map() => true,
            Kind::Message(inner) => holds_many(&inner),
            _ => false,
        })
    }

    fn compare(message: &MessageDescriptor, repeated: &RepeatedFields) {
        let name = message.full_name();
        for field in message.fields() {
            let inner = match field.kind() {
                Kind::Message(inner) if !field.is_map() => Some(inner),
                _ => None,
            };
            let counts = field.is_list() || field.is_map() || inner.as_ref().is_some_and(holds_many);
            let known = repeated.0.iter().find(|(number, _)| *number == u64::from(field.number()));
            assert_eq!(known.is_some(), counts, "{name}.{}", field.name());
            if let (Some((_, repeated)), Some(inner)) = (known, inner) {
                compare(&inner, repeated);
            }
        }
        assert!(
            repeated.0.iter().all(|(number, _)| message.get_field(u32::try_from(*number).unwrap()).is_some()),
            "{name}"
        );
    }

    #[test]
    fn repeated_fields_are_those_of_the_messages() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
        let files =
            protox::compile(["provisionerd.proto", "provisionerext.proto", "agent.proto"], [folder]).unwrap();
        let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
        for (name, repeated) in ALL {
            compare(&pool.get_message_by_name(name).unwrap(), repeated);
        }
    }

    #[test]
    fn elements_are_counted_at_every_depth() {
        let agent = pb::Agent { scripts: vec![pb::Script::default(); 3], ..Default::default() };
        let resource = pb::Resource { agents: vec![agent.clone(), agent], ..Default::default() };
        let built = pd::completed_job::WorkspaceBuild {
            resources: vec![resource; 2],
            state: b"\x12\x00\x12\x00".to_vec().into(),
            ..Default::default()
        };
        let job = pd::CompletedJob {
            job_id: "j".to_owned(),
            r#type: Some(pd::completed_job::Type::WorkspaceBuild(built)),
        };
        // The arm, two resources, in each two agents of three scripts.
        assert_eq!(count::<pd::CompletedJob>(&job.encode_to_vec()), 1 + 2 * (1 + 2 * (1 + 3)));
        let update = pd::UpdateJobRequest { logs: vec![pd::Log::default(); 1000], ..Default::default() };
        let data = update.encode_to_vec();
        assert_eq!((data.len(), count::<pd::UpdateJobRequest>(&data)), (2000, 1000));
        assert_eq!(count::<pd::UpdateJobRequest>(&[0xff; 30]), 0);
    }

    /// A later version may have more fields, of every kind that there is.
    #[test]
    fn elements_are_counted_behind_unknown_fields() {
        let log = [0x12, 0];
        for (kind, unknown) in [
            ("a number", &[0x78, 0x92, 0x12][..]),
            ("eight bytes", &[0x79, 0x12, 0, 0x12, 0, 0x12, 0, 0x12, 0]),
            ("bytes", &[0x7a, 4, 0x12, 0, 0x12, 0]),
            ("a group", &[0x7b, 0x7c]),
            ("four bytes", &[0x7d, 0x12, 0, 0x12, 0]),
            ("a field of a high number", &[0xfa, 0x7f, 2, 0x12, 0]),
        ] {
            let data = [&log[..], unknown, &log, &log].concat();
            assert_eq!(count::<pd::UpdateJobRequest>(&data), 3, "{kind}");
        }
        // Wire types 6 and 7 do not exist, and neither does a message that ends within a field.
        for malformed in [&[0x7e][..], &[0x7f], &[0x7a, 9], &[0x79, 1], &[0x7d, 1]] {
            let data = [&log[..], malformed, &log].concat();
            assert_eq!(count::<pd::UpdateJobRequest>(&data), 1, "{malformed:x?}");
        }
        let long = pd::Log { output: "x".repeat(300), ..pd::Log::default() };
        let update = pd::UpdateJobRequest { logs: vec![long; 20], ..Default::default() };
        assert_eq!(count::<pd::UpdateJobRequest>(&update.encode_to_vec()), 20);
    }
}
