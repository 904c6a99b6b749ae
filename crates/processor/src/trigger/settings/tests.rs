//! Every name of every setting, and the refused values.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn app() -> AppSettings {
    AppSettings::none().with("Name", "orders").with("Delay", "250")
}

fn parse(binding: &str) -> Result<TriggerSettings, SettingsError> {
    TriggerSettings::parse(binding, None, &app())
}

/// Parses a binding with a container and these additional properties.
fn with(more: &str) -> Result<TriggerSettings, SettingsError> {
    parse(&format!(r#"{{"databaseName":"shop","containerName":"orders"{more}}}"#))
}

#[test]
fn without_settings_there_are_the_defaults_of_the_extension() {
    let settings = with("").unwrap();
    assert_eq!(settings, TriggerSettings::new("shop", "orders"));
    assert_eq!((settings.connection, settings.lease_connection), (None, None));
    assert_eq!(settings.lease_database, "shop");
    assert_eq!(settings.lease_container, "leases");
    assert!(!settings.create_lease_container);
    assert_eq!((settings.lease_throughput, settings.prefix.as_str()), (None, ""));
    assert_eq!(settings.poll_delay, SECOND * 5);
    assert_eq!(settings.acquire_interval, SECOND * 13);
    assert_eq!(settings.expiration, SECOND * 60);
    assert_eq!(settings.renew_interval, SECOND * 17);
    assert_eq!((settings.items_max, settings.start), (Some(100), Start::Now));
    assert_eq!(settings.checkpoint, Checkpoint::EveryBatch);
}

/// Every row of the table: current names, older names, parsed values.
#[test]
fn every_setting_is_known_by_its_present_and_its_older_names() {
    let present = r#"{"connection":"A","databaseName":"shop","containerName":"%Name%",
        "leaseConnection":"B","leaseDatabaseName":"other","leaseContainerName":"mine",
        "createLeaseContainerIfNotExists":true,"leasesContainerThroughput":400,
        "leaseContainerPrefix":"p","feedPollDelay":"%Delay%","leaseAcquireInterval":1000,
        "leaseExpirationInterval":6000,"leaseRenewInterval":2000,"maxItemsPerInvocation":7,
        "startFromTime":"2021-02-16T14:19:29Z","preferredLocations":"West Europe, East US,"}"#;
    let mut expected = TriggerSettings::new("shop", "orders");
    expected.connection = Some("A".to_owned());
    expected.lease_connection = Some("B".to_owned());
    expected.lease_database = "other".to_owned();
    expected.lease_container = "mine".to_owned();
    expected.create_lease_container = true;
    expected.lease_throughput = Some(400);
    expected.prefix = "p".to_owned();
    expected.poll_delay = Duration::from_millis(250);
    expected.acquire_interval = SECOND;
    expected.expiration = SECOND * 6;
    expected.renew_interval = SECOND * 2;
    expected.items_max = Some(7);
    expected.start = Start::Time(Timestamp::from_seconds(1_613_485_169));
    expected.preferred_regions = vec!["West Europe".to_owned(), "East US".to_owned()];
    assert_eq!(parse(present), Ok(expected.clone()));
    let older = r#"{"ConnectionStringSetting":"A","databaseName":"shop","collectionName":"orders",
        "leaseConnectionStringSetting":"B","leaseDatabaseName":"other","leaseCollectionName":"mine",
        "createLeaseCollectionIfNotExists":"True","leasesCollectionThroughput":400,
        "leaseCollectionPrefix":"p","feedPollDelay":250,"leaseAcquireInterval":1000,
        "leaseExpirationInterval":6000,"leaseRenewInterval":2000,"maxItemsPerInvocation":7,
        "startFromTime":"2021-02-16T14:19:29Z","preferredLocations":"West Europe,East US"}"#;
    assert_eq!(parse(older), Ok(expected));
    assert_eq!(with(r#","leasePrefix":"p""#).unwrap().prefix, "p");
    assert_eq!(with(r#","feedPollTime":250"#).unwrap().poll_delay, Duration::from_millis(250));
    assert_eq!(with(r#","startFromBeginning":true"#).unwrap().start, Start::Beginning);
    let checkpoint = |more| with(more).unwrap().checkpoint;
    let every = |items, interval| Checkpoint::Every { items, bytes: 0, interval };
    assert_eq!(checkpoint(r#","checkpointInterval":3000"#), every(0, SECOND * 3));
    assert_eq!(checkpoint(r#","checkpointDocumentCount":50"#), every(50, Duration::ZERO));
}

#[test]
fn a_whole_function_json_and_host_json_will_do() {
    let function = r#"{"scriptFile":"index.js","bindings":[
        {"type":"cosmosDB","direction":"out","name":"o","databaseName":"x","containerName":"y"},
        {"type":"cosmosDBTrigger","direction":"in","name":"documents","databaseName":"shop",
         "containerName":"orders"}],
        "retry":{"strategy":"fixedDelay","maxRetryCount":2,"delayInterval":"00:00:01"}}"#;
    let host = r#"{"version":"2.0","extensions":{"cosmosDB":{"connectionMode":"Direct",
        "protocol":"Tcp","userAgentSuffix":"me","leaseOptions":{"leasePrefix":"p"}}}}"#;
    let settings = TriggerSettings::parse(function, Some(host), &app()).unwrap();
    assert_eq!(settings.retry, Some(Retry::fixed_delay(Some(2), SECOND)));
    assert_eq!((settings.container.as_str(), settings.prefix.as_str()), ("orders", "p"));
    assert_eq!(settings.user_agent_suffix.as_deref(), Some("me"));
    assert_eq!(settings.notes.len(), 2, "{:?}", settings.notes);
    // The binding takes precedence, and a host.json without our section is fine.
    let own = r#"{"databaseName":"shop","containerName":"orders","leaseContainerPrefix":"own"}"#;
    let settings = TriggerSettings::parse(own, Some(host), &app()).unwrap();
    assert_eq!(settings.prefix, "own");
    let bare = TriggerSettings::parse(own, Some(r#"{"version":"2.0"}"#), &app()).unwrap();
    assert_eq!(bare.notes, Vec::<String>::new());
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    for (more, says) in [
        (r#","feedPollTime":5000,"feedPollDelay":100"#, "feedPollDelay and feedPollTime"),
        (r#","leaseContainername2":"x""#, "no setting \"leaseContainername2\""),
        (r#","collectionName":"other""#, "containerName and collectionName"),
        (r#","leaseContainerName":"orders""#, "the monitored container \"orders\""),
        (
            r#","startFromBeginning":true,"startFromTime":"2021-02-16T14:19:29Z""#,
            "exclude each other",
        ),
        (r#","startFromTime":"yesterday""#, "2021-02-16T14:19:29Z"),
        (r#","startFromTime":"2021-02-16T14:19:29+01:00""#, "UTC"),
        (r#","startFromBeginning":"perhaps""#, "true or false"),
        (r#","feedPollDelay":-1"#, "feedPollDelay is -1"),
        (r#","feedPollDelay":4294967296"#, "milliseconds"),
        (r#","leaseRenewInterval":"soon""#, "milliseconds"),
        (r#","maxItemsPerInvocation":-5"#, "maxItemsPerInvocation is -5"),
        (r#","leasesContainerThroughput":100"#, "at least 400"),
        (r#","leaseExpirationInterval":20000"#, "three times leaseRenewInterval"),
        (r#","leaseContainerName":5"#, "a text"),
        (r#","leaseContainerPrefix":"%Nobody%""#, "no app setting \"Nobody\""),
    ] {
        let refused = with(more).unwrap_err().to_string();
        assert!(refused.contains(says), "{more}: {refused}");
    }
    for (text, says) in [
        ("[]", "function.json"),
        (r#"{"bindings":[{"type":"queueTrigger"}]}"#, "cosmosDBTrigger"),
        (r#"{"containerName":"orders"}"#, "databaseName is missing"),
        (r#"{"databaseName":"shop","containerName":""}"#, "containerName is missing"),
    ] {
        let refused = parse(text).unwrap_err().to_string();
        assert!(refused.contains(says), "{text}: {refused}");
    }
    let host = r#"{"leaseOptions":{"prefix":"p"}}"#;
    let binding = r#"{"databaseName":"shop","containerName":"orders"}"#;
    let refused = TriggerSettings::parse(binding, Some(host), &app()).unwrap_err();
    assert!(refused.to_string().contains("\"prefix\""), "{refused}");
}

#[test]
fn zero_and_null_are_as_if_nothing_was_said() {
    let said = r#","feedPollDelay":0,"leaseAcquireInterval":0,"maxItemsPerInvocation":0,
        "leaseConnection":null,"startFromTime":"","checkpointInterval":0"#;
    assert_eq!(with(said), Ok(TriggerSettings::new("shop", "orders")));
    // Equal values under two names are fine, and so is a container of the same name in another account.
    assert_eq!(with(r#","collectionName":"orders""#), with(""));
    assert!(with(r#","leaseContainerName":"orders","leaseConnection":"B""#).is_ok());
    assert!(with(r#","leaseContainerName":"orders","leaseDatabaseName":"b""#).is_ok());
}

#[test]
fn settings_become_the_options_of_a_processor() {
    let settings = with(
        r#","leaseContainerPrefix":"p","maxItemsPerInvocation":7,
        "leaseRenewInterval":2000,"startFromBeginning":true"#,
    );
    let options = settings.unwrap().options();
    assert_eq!(options.profile, crate::Profile::Interop(Flavour::DotNetV3));
    assert_eq!((options.processor_name.as_str(), options.items_max), ("p", Some(7)));
    assert_eq!(with("").unwrap().options().items_max, Some(100));
    assert_eq!((options.renew_interval, options.expiration), (SECOND * 2, SECOND * 60));
    assert_eq!((options.start.clone(), options.objection()), (Start::Beginning, None));
}
