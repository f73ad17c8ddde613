-- Which program ran a job's Terraform, as its daemon told: `terraform` or `opentofu`, and the version. Empty when unknown.
alter table provisioner_jobs add column program_product text not null default '';
alter table provisioner_jobs add column program_version text not null default '';
