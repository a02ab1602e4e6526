//! Exit codes, addresses, tokens.

use serde_json::json;

use crate::support::{Running, tms_with};

#[test]
fn a_wrong_command_line_ends_with_2() {
    for args in [
        vec!["nonsense"],
        vec!["instance", "show"],
        vec!["instance", "list", "--limit", "x"],
        vec!["instance", "list", "--limit", "0"],
        vec!["instance", "list", "--limit", "-1"],
        vec!["table", "list", "--limit", "1001"],
        vec!["instance", "show", ""],
        vec!["table", "show", ""],
        vec!["inspect", ""],
        vec!["instance", "add", "/t", "--action", "clean", "--timeout", "5s"],
        vec!["--server", "no-address", "node", "list"],
        vec!["--token-file", "/nowhere/token", "node", "list"],
    ] {
        let said = tms_with(&[], &args);
        assert_eq!(said.code, 2, "{args:?} {said:?}");
        assert!(said.out.is_empty() && !said.err.is_empty(), "{said:?}");
    }
    assert_eq!(tms_with(&[], &["--help"]).code, 0);
    assert_eq!(tms_with(&[], &["--version"]).code, 0);
}

/// What the server could only refuse is said before it is asked: there is none here.
#[test]
fn a_word_or_id_that_cannot_be_meant_ends_with_2_without_a_server() {
    let id = "01890000-0000-7000-8000-000000000000";
    for (args, told) in [
        (vec!["instance", "show", "nosuch"], "as printed by `tms instance list`"),
        (vec!["instance", "cancel", &id[1..]], "as printed by `tms instance list`"),
        (vec!["instance", "list", "--state", "foo"], "parked"),
        (vec!["instance", "list", "--state", "pending,foo"], "parked"),
        (vec!["instance", "list", "--action", "vacuum"], "logcompaction"),
        (vec!["instance", "add", "/t", "--action", "logcompaction"], "no procedure"),
        (vec!["instance", "add", "/t", "--action", "clean", "--instant", "x"], "digits"),
        (vec!["table", "register", "/t", "--concurrency", "maybe"], "exclusive"),
        (vec!["table", "register", "/t", "--take-over", "always"], "after_grace"),
        (vec!["table", "register", "/t", "--actions", "clean,bogus"], "use compaction, clustering or clean"),
        (vec!["queue", "pause", "a b"], "1 to 64 characters"),
    ] {
        let said = tms_with(&[("TMS_URL", "http://127.0.0.1:1")], &args);
        assert!(said.code == 2 && said.err.contains(told), "{args:?} {said:?}");
    }
    let bogus = tms_with(&[], &["instance", "add", "/t", "--action", "bogus"]);
    assert!(bogus.code == 2 && !bogus.err.contains("logcompaction"), "{bogus:?}");
}

#[test]
fn a_usage_line_does_not_ask_for_the_servers_address() {
    let said = tms_with(&[("TMS_URL", "http://127.0.0.1:1")], &["instance", "show"]);
    assert!(said.err.contains("Usage: tms instance show") && !said.err.contains("--server"), "{said:?}");
}

#[tokio::test]
async fn an_address_that_is_a_bit_wrong_is_told() {
    let server = Running::start(&[]).await;
    let url = format!("{}/v1", server.url);
    let said = server.tms(&["--server", &url, "node", "list"]).await;
    assert!(said.code == 3 && said.err.contains(&url) && said.err.contains("without a path"), "{said:?}");
    let url = server.url.replace("http:", "https:");
    let said = server.tms(&["--server", &url, "node", "list"]).await;
    assert!(said.code == 4 && said.err.contains("by TLS") && said.err.contains("http://"), "{said:?}");
    server.stop().await;
}

#[test]
fn options_of_every_command_stand_after_those_of_the_command() {
    for (args, own) in
        [(vec!["instance", "add", "--help"], "--action"), (vec!["instance", "list", "--help"], "--limit")]
    {
        let help = tms_with(&[], &args).out;
        // The last place: the usage line names options, too.
        let at = |word: &str| help.rfind(word).unwrap_or_else(|| panic!("{word}: {help}"));
        assert!(at("\nOptions:") < at(own) && at(own) < at("\nConnection:"), "{help}");
        assert!(at("\nConnection:") < at("--server") && at("--token-file") < at("\nOutput:"), "{help}");
        assert!(at("\nOutput:") < at("--output"), "{help}");
    }
}

#[test]
fn a_server_that_is_not_there_ends_with_4() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for (environment, args) in [
        (vec![("TMS_URL", url.as_str())], vec!["node", "list"]),
        (vec![("TMS_URL", "http://127.0.0.1:1")], vec!["--server", &url, "instance", "list", "-o", "json"]),
    ] {
        let said = tms_with(&environment, &args);
        assert_eq!(said.code, 4, "{said:?}");
        assert!(said.err.contains(&url) && said.out.is_empty(), "{said:?}");
    }
}

#[tokio::test]
async fn what_is_not_there_ends_with_3_and_what_is_refused_with_1() {
    let server = Running::start(&[]).await;
    let unknown = "01890000-0000-7000-8000-000000000000";
    for args in [
        vec!["instance", "show", unknown],
        vec!["instance", "cancel", unknown],
        vec!["instance", "logs", unknown],
        vec!["table", "show", "/nowhere"],
        vec!["table", "look", "00000000000000000000000000000000"],
    ] {
        let said = server.tms(&args).await;
        assert_eq!(said.code, 3, "{args:?} {said:?}");
        assert!(said.out.is_empty() && said.err.contains("not found"), "{said:?}");
    }
    for args in [
        vec!["instance", "add", "/data/t", "--action", "compaction"],
        vec!["table", "register", "/data/t", "--foreign-grace", "1m"],
        vec!["table", "register", "/data/../t"],
    ] {
        let said = server.tms(&args).await;
        assert_eq!(said.code, 1, "{args:?} {said:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_token_comes_from_a_file_or_the_environment_and_is_never_said() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "the-token-of-the-api\n").unwrap();
    let token = token.to_str().unwrap();
    let server = Running::start(&[("server.token_file", token)]).await;
    let url = server.url.clone();
    let with = |environment: &[(&str, &str)], args: &[&str]| {
        let environment: Vec<(String, String)> =
            environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let url = url.clone();
        tokio::task::spawn_blocking(move || {
            let mut all = vec![("TMS_URL", url.as_str())];
            all.extend(environment.iter().map(|(k, v)| (k.as_str(), v.as_str())));
            tms_with(&all, &args.iter().map(String::as_str).collect::<Vec<_>>())
        })
    };
    for (environment, args) in [
        (vec![], vec!["node", "list"]),
        (vec![("TMS_TOKEN", "wrong-token-of-somebody")], vec!["instance", "list"]),
    ] {
        let said = with(&environment, &args).await.unwrap();
        assert_eq!(said.code, 5, "{said:?}");
        assert!(!format!("{said:?}").contains("wrong-token"), "{said:?}");
    }
    assert_eq!(with(&[("TMS_TOKEN", "the-token-of-the-api")], &["node", "list"]).await.unwrap().code, 0);
    assert_eq!(
        with(&[("TMS_TOKEN", "wrong")], &["node", "list", "--token-file", token]).await.unwrap().code,
        0
    );
    server.stop().await;
}

#[tokio::test]
async fn queues_and_nodes_are_shown_to_people_and_programs() {
    let server = Running::start(&[("server.node_name", "n1")]).await;
    let slip = server.tms(&["queue", "resume", "etl"]).await;
    assert_eq!(slip.code, 3, "{slip:?}");
    let new = server.tms(&["queue", "pause", "etl"]).await;
    assert!(new.code == 0 && new.err.contains("etl is a new queue"), "{new:?}");
    let known = server.tms(&["queue", "pause", "etl"]).await;
    assert!(known.code == 0 && known.err.is_empty(), "{known:?}");
    let queues = server.tms(&["queue", "list", "-o", "json"]).await.json();
    assert_eq!(queues.as_array().unwrap().len(), 2);
    assert_eq!((queues[1]["name"].clone(), queues[1]["is_paused"].clone()), (json!("etl"), json!(true)));
    assert_eq!(server.tms(&["-o", "json", "queue", "resume", "etl"]).await.json()["is_paused"], false);
    let text = server.tms(&["queue", "list"]).await.out;
    assert!(text.starts_with("NAME") && text.contains("etl") && text.contains("not fixed"), "{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal");
    let nodes = server.until(&["node", "list", "-o", "json"], |n| n[0]["is_leader"] == true).await;
    assert_eq!(nodes[0]["name"], "n1");
    server.stop().await;
}
