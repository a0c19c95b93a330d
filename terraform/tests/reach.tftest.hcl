# Other regions, and other ways to port 22 than IAP.

mock_provider "google" {
  source = "./tests/mocks"
}
mock_provider "google-beta" {}

variables {
  protection = "records"
  project_id = "demo-project-1"
  region     = "europe-west4"
  zone       = "europe-west4-a"
  members    = ["user:ada@example.com"]
}

run "one_region_and_iap_alone" {
  assert {
    condition     = length(google_compute_subnetwork.other) + length(google_compute_router.other) + length(google_compute_router_nat.other) + length(google_compute_firewall.ssh_from_ranges) == 0
    error_message = "By default there is one region, and SSH through IAP alone."
  }
  assert {
    condition     = output.tpuctl.subnetworks == { europe-west4 = "tpuctl-europe-west4" }
    error_message = "tpuctl reads the subnetwork of each region."
  }
}

run "two_more_regions" {
  variables {
    regions = { us-central1 = "10.129.0.0/20", us-east1 = "10.130.0.0/20" }
  }

  assert {
    condition     = alltrue([for region, subnetwork in google_compute_subnetwork.other : subnetwork.region == region && subnetwork.private_ip_google_access && subnetwork.ip_cidr_range == var.regions[region] && subnetwork.network == google_compute_network.this.id])
    error_message = "Each region has a subnetwork with its range and Private Google Access."
  }
  assert {
    condition = alltrue([
      for region, nat in google_compute_router_nat.other : nat.region == region && nat.router == google_compute_router.other[region].name &&
      nat.nat_ip_allocate_option == "AUTO_ONLY" && nat.source_subnetwork_ip_ranges_to_nat == "LIST_OF_SUBNETWORKS" && one(nat.subnetwork).name == google_compute_subnetwork.other[region].id && google_compute_router.other[region].region == region
    ])
    error_message = "Cloud NAT of a region must serve only its subnetwork."
  }
  assert {
    condition     = google_compute_firewall.between_hosts.source_ranges == toset(["10.128.0.0/20", "10.129.0.0/20", "10.130.0.0/20"])
    error_message = "Hosts of the subnetworks reach each other, and nobody else reaches them."
  }
  assert {
    condition     = output.tpuctl.subnetworks == { europe-west4 = "tpuctl-europe-west4", us-central1 = "tpuctl-us-central1", us-east1 = "tpuctl-us-east1" }
    error_message = "tpuctl reads the subnetwork of each region."
  }
}

run "a_vpn" {
  variables {
    ssh_ranges = ["10.8.0.0/16"]
  }

  assert {
    condition = (
      google_compute_firewall.ssh_from_ranges[0].source_ranges == toset(["10.8.0.0/16"]) &&
      one(google_compute_firewall.ssh_from_ranges[0].allow).protocol == "tcp" && one(google_compute_firewall.ssh_from_ranges[0].allow).ports == tolist(["22"]) &&
      google_compute_firewall.ssh_from_ranges[0].direction == "INGRESS" && length(google_compute_firewall.ssh_from_ranges[0].log_config) == 1
    )
    error_message = "A VPN reaches port 22 only, and its connections are logged."
  }
  assert {
    condition     = google_compute_firewall.ssh_through_iap.source_ranges == toset(["35.235.240.0/20"])
    error_message = "IAP's rule stays as it is."
  }
}

run "ssh_from_everywhere" {
  command = plan
  variables {
    ssh_ranges = ["0.0.0.0/0"]
  }
  expect_failures = [var.ssh_ranges]
}

run "ssh_from_half_of_everywhere" {
  command = plan
  variables {
    ssh_ranges = ["0.0.0.0/1", "128.0.0.0/1"]
  }
  expect_failures = [var.ssh_ranges]
}

run "ssh_from_an_address_in_a_range" {
  command = plan
  variables {
    ssh_ranges = ["10.8.0.1/16"]
  }
  expect_failures = [var.ssh_ranges]
}

run "ssh_from_ipv6" {
  command = plan
  variables {
    ssh_ranges = ["::/0"]
  }
  expect_failures = [var.ssh_ranges]
}

run "the_region_twice" {
  command = plan
  variables {
    regions = { europe-west4 = "10.129.0.0/20" }
  }
  expect_failures = [var.regions]
}

run "a_zone_for_a_region" {
  command = plan
  variables {
    regions = { us-central1-a = "10.129.0.0/20" }
  }
  expect_failures = [var.regions]
}

run "a_public_range" {
  command = plan
  variables {
    regions = { us-central1 = "8.8.0.0/20" }
  }
  expect_failures = [var.regions]
}

run "a_range_twice" {
  command = plan
  variables {
    regions = { us-central1 = "10.128.0.0/20" }
  }
  expect_failures = [var.regions]
}

run "a_range_in_a_range" {
  command = plan
  variables {
    regions = { us-central1 = "10.128.8.0/22" }
  }
  expect_failures = [var.regions]
}

run "ranges_of_two_regions_that_overlap" {
  command = plan
  variables {
    regions = { us-central1 = "10.132.0.0/14", us-east1 = "10.134.0.0/20" }
  }
  expect_failures = [var.regions]
}
