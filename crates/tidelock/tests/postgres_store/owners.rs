//! Schemas that somebody else made first: the owner of what a client calls has the rights of that client.

use test_servers::{Postgres, Server};
use tidelock::backends::postgres::schema;

use crate::{
    sql,
    support::{NAME, Place, login::refusal},
};

trials! {
    a_schema_that_a_lesser_role_made_first_is_refused_and_nothing_in_it_is_called,
    a_function_or_trigger_that_a_lesser_role_added_is_refused_and_not_called,
    a_client_uses_what_an_administrator_or_the_owner_of_the_database_installed,
    a_role_that_is_neither_owns_the_schema_only_if_the_url_names_it,
    functions_that_shadow_those_of_the_server_are_not_called,
}

/// A function that makes its author a superuser, if one calls it.
const RISE: &str = "CREATE FUNCTION public.rise() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END $$";

/// A server with a database of one's own for each attack, where the attacker may create schemas.
fn server(databases: &[&str]) -> Server {
    let server = Postgres::new().start().unwrap();
    sql(&server, "CREATE ROLE mallory LOGIN");
    for database in databases {
        sql(&server, &format!("CREATE DATABASE {database}"));
        sql(&server, &format!("GRANT CREATE ON DATABASE {database} TO mallory"));
        within(&server, database, "postgres", "GRANT CREATE ON SCHEMA public TO mallory").unwrap();
        within(&server, database, "mallory", RISE).unwrap();
    }
    server
}

/// Asks something in a database, as a role.
fn within(server: &Server, database: &str, role: &str, text: &str) -> Result<String, test_servers::Error> {
    server.ask(&["-U", role, "-d", database, "-c", text])
}

/// The locks of a database, for a role.
fn place(server: &Server, database: &str, role: &str) -> Place {
    Place::on(&format!("postgres://{role}@{}/{database}", server.addr()))
}

fn nobody_rose(server: &Server) {
    assert_eq!(sql(server, "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), "f");
}

/// A superuser who connects hears whose schema it is, and so does one who installs by hand.
async fn is_refused(server: &Server, database: &str) {
    let error = refusal(&place(server, database, "postgres")).await;
    nobody_rose(server);
    let said = error.to_string();
    assert!(error.is_denied() && said.contains("\"mallory\"") && said.contains("owner="), "{said}");
    let by_hand = within(server, database, "postgres", &schema()).unwrap_err().to_string();
    nobody_rose(server);
    assert!(by_hand.contains("belongs to the role \"mallory\""), "{by_hand}");
}

async fn a_schema_that_a_lesser_role_made_first_is_refused_and_nothing_in_it_is_called() {
    let attacks = [
        ("empty", "CREATE SCHEMA tidelock"),
        (
            "calls",
            "CREATE SCHEMA tidelock; CREATE FUNCTION tidelock.version() RETURNS int LANGUAGE sql AS 'SELECT public.rise()::int'; GRANT USAGE ON SCHEMA tidelock TO PUBLIC",
        ),
        (
            "fires",
            "CREATE SCHEMA tidelock; CREATE TABLE tidelock.state (one boolean PRIMARY KEY DEFAULT true, longest bigint DEFAULT 0, timeline text); CREATE FUNCTION tidelock.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.rise(); RETURN NEW; END $$; CREATE TRIGGER fire BEFORE INSERT ON tidelock.state FOR EACH ROW EXECUTE FUNCTION tidelock.fire()",
        ),
        (
            "casts",
            "CREATE SCHEMA tidelock; CREATE TYPE tidelock.claim AS (id uuid); CREATE FUNCTION tidelock.now_micros() RETURNS bigint LANGUAGE sql AS 'SELECT public.rise()::int::bigint'",
        ),
    ];
    let server = server(&attacks.map(|(database, _)| database));
    for (database, attack) in attacks {
        within(&server, database, "mallory", attack).unwrap();
        is_refused(&server, database).await;
    }
}

async fn a_function_or_trigger_that_a_lesser_role_added_is_refused_and_not_called() {
    let attacks = [
        (
            "overload",
            "GRANT CREATE, USAGE ON SCHEMA tidelock TO mallory",
            "CREATE FUNCTION tidelock.sweep(numeric) RETURNS void LANGUAGE sql AS 'SELECT public.rise()'",
        ),
        (
            "trigger",
            "GRANT USAGE ON SCHEMA tidelock TO mallory; GRANT TRIGGER ON tidelock.line TO mallory",
            "CREATE FUNCTION public.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.rise(); RETURN NEW; END $$; CREATE TRIGGER fire BEFORE INSERT OR UPDATE ON tidelock.line FOR EACH ROW EXECUTE FUNCTION public.fire()",
        ),
    ];
    let server = server(&attacks.map(|(database, ..)| database));
    for (database, grant, attack) in attacks {
        place(&server, database, "postgres").serves().await;
        within(&server, database, "postgres", grant).unwrap();
        within(&server, database, "mallory", attack).unwrap();
        is_refused(&server, database).await;
    }
}

const GRANTS: &str =
    "GRANT USAGE ON SCHEMA tidelock TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidelock TO app";

async fn a_client_uses_what_an_administrator_or_the_owner_of_the_database_installed() {
    let server = Postgres::new().start().unwrap();
    sql(&server, "CREATE ROLE app LOGIN; CREATE ROLE boss LOGIN");
    for (database, installer) in [("one", "postgres"), ("two", "boss")] {
        sql(&server, &format!("CREATE DATABASE {database} OWNER boss"));
        place(&server, database, installer).serves().await;
        within(&server, database, installer, GRANTS).unwrap();
        place(&server, database, "app").serves().await;
    }
    // To the owner of the database an administrator's is fine, and not the other way round.
    within(&server, "one", "postgres", &GRANTS.replace("app", "boss")).unwrap();
    place(&server, "one", "boss").serves().await;
    let error = refusal(&place(&server, "two", "postgres")).await;
    assert!(error.is_denied() && error.to_string().contains("\"boss\""), "{error}");
    place(&server, "two", "postgres").with("owner=boss").serves().await;
}

async fn a_role_that_is_neither_owns_the_schema_only_if_the_url_names_it() {
    let server = server(&["app"]);
    sql(&server, "CREATE ROLE app LOGIN");
    place(&server, "app", "mallory").serves().await;
    within(&server, "app", "mallory", GRANTS).unwrap();
    // That a client may do what the owner may does not let the owner do what the client may.
    sql(&server, "GRANT mallory TO app");
    let app = place(&server, "app", "app");
    for wrong in [app.clone(), app.with("owner=postgres")] {
        let error = refusal(&wrong).await;
        assert!(error.is_denied() && error.to_string().contains("\"mallory\""), "{error}");
    }
    app.with("owner=mallory").serves().await;
}

async fn functions_that_shadow_those_of_the_server_are_not_called() {
    let server = server(&["app"]);
    sql(&server, "ALTER DATABASE app OWNER TO mallory");
    for (function, result) in [
        ("pg_is_in_recovery()", "boolean"),
        ("pg_backend_pid()", "int"),
        ("current_setting(text)", "text"),
        ("current_setting(text, boolean)", "text"),
        ("pg_advisory_xact_lock(bigint)", "void"),
        ("pg_walfile_name(pg_lsn)", "text"),
        ("\"left\"(text, int)", "text"),
        ("set_config(text, text, boolean)", "text"),
        ("clock_timestamp()", "timestamptz"),
    ] {
        let text = format!(
            "CREATE FUNCTION public.{function} RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN PERFORM public.rise(); RETURN {}; END $$",
            if result == "void" { "" } else { "NULL" }
        );
        within(&server, "app", "mallory", &text).unwrap();
    }
    let equal = "CREATE FUNCTION public.same(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT public.rise()'; CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = name, FUNCTION = public.same); ALTER DATABASE app SET search_path = public, pg_catalog";
    within(&server, "app", "mallory", equal).unwrap();
    let locks = place(&server, "app", "postgres").connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    nobody_rose(&server);
}
