//! Organizations and members (http-api 4).

use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

on_both_engines! {
    async fn every_way_to_name_the_default_organization(server: TestServer) {
        let owner = server.owner().await;
        let by_name = server.get(&owner, "/api/v2/organizations/coder").await.expect(200);
        let id = by_name["id"].as_str().unwrap();
        for name in ["default", "Default", "CODER", "00000000-0000-0000-0000-000000000000", id] {
            assert_eq!(server.get(&owner, &format!("/api/v2/organizations/{name}")).await.expect(200)["id"], by_name["id"]);
        }
        server.get(&owner, "/api/v2/organizations/nothing").await.expect(404);
        server.get(&owner, "/api/v2/organizations/a%2Fb%20c").await.expect(404);
        assert_eq!(server.get(&owner, "/api/v2/organizations").await.expect(200).as_array().unwrap().len(), 1);
    }

    async fn members(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let path = "/api/v2/organizations/default/members";
        let list = server.get(&member, path).await.expect(200);
        assert_eq!(list[1]["username"], "dev");
        assert_eq!(list[0]["global_roles"][0]["name"], "owner");
        server.post(&owner, &format!("{path}/dev"), Value::Null).await.expect(400);
        server.delete(&member, &format!("{path}/admin")).await.expect(403);
        server.delete(&owner, &format!("{path}/admin")).await.expect(400);
        server.delete(&owner, &format!("{path}/dev")).await.expect(204);
        server.get(&member, path).await.expect(404);
        assert_eq!(server.get(&member, "/api/v2/users/me/organizations").await.expect(200), json!([]));
        server.post(&owner, &format!("{path}/dev"), Value::Null).await.expect(200);
        let page = server.get(&owner, "/api/v2/organizations/default/paginated-members?limit=1").await.expect(200);
        assert_eq!((page["count"].as_i64(), page["members"].as_array().unwrap().len()), (Some(2), 1));
    }
}
