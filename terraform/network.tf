# TPU VMs have no external addresses. They reach Google's APIs through Private Google Access and everything else
# through Cloud NAT; SSH reaches them only through IAP.

resource "google_compute_network" "this" {
  project                 = var.project_id
  name                    = var.name
  auto_create_subnetworks = false
  mtu                     = var.mtu

  depends_on = [google_project_service.this]
}

resource "google_compute_subnetwork" "this" {
  project                  = var.project_id
  name                     = "${var.name}-${var.region}"
  region                   = var.region
  network                  = google_compute_network.this.id
  ip_cidr_range            = var.subnet_cidr
  private_ip_google_access = true
}

resource "google_compute_router" "this" {
  project = var.project_id
  name    = var.name
  region  = var.region
  network = google_compute_network.this.id
}

resource "google_compute_router_nat" "this" {
  project                            = var.project_id
  name                               = var.name
  region                             = var.region
  router                             = google_compute_router.this.name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  subnetwork {
    name                    = google_compute_subnetwork.this.id
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}

# Other regions, where TPUs are looked for when the first has no capacity: each has a subnetwork and a NAT of its own.

resource "google_compute_subnetwork" "other" {
  for_each = var.regions

  project                  = var.project_id
  name                     = "${var.name}-${each.key}"
  region                   = each.key
  network                  = google_compute_network.this.id
  ip_cidr_range            = each.value
  private_ip_google_access = true
}

locals {
  subnetworks = merge(
    { (var.region) = google_compute_subnetwork.this.name },
    { for region, subnetwork in google_compute_subnetwork.other : region => subnetwork.name },
  )
}

resource "google_compute_router" "other" {
  for_each = var.regions

  project = var.project_id
  name    = var.name
  region  = each.key
  network = google_compute_network.this.id
}

resource "google_compute_router_nat" "other" {
  for_each = var.regions

  project                            = var.project_id
  name                               = var.name
  region                             = each.key
  router                             = google_compute_router.other[each.key].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  subnetwork {
    name                    = google_compute_subnetwork.other[each.key].id
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}

# The rules have no target tags: TPU VMs created from a queued resource may lack them.

resource "google_compute_firewall" "ssh_through_iap" {
  project     = var.project_id
  name        = "${var.name}-ssh-through-iap"
  description = "SSH from Google's Identity-Aware Proxy, which checks IAM first"
  network     = google_compute_network.this.id
  direction   = "INGRESS"

  # The range that IAP's TCP forwarding uses.
  source_ranges = ["35.235.240.0/20"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }

  log_config {
    metadata = "INCLUDE_ALL_METADATA"
  }
}

# A VPN, or machines of one's own in the network, from which tpuctl is run with `iap = false`.
resource "google_compute_firewall" "ssh_from_ranges" {
  count = length(var.ssh_ranges) == 0 ? 0 : 1

  project       = var.project_id
  name          = "${var.name}-ssh-from-ranges"
  description   = "SSH from the ranges in ssh_ranges, such as a VPN's"
  network       = google_compute_network.this.id
  direction     = "INGRESS"
  source_ranges = var.ssh_ranges

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }

  log_config {
    metadata = "INCLUDE_ALL_METADATA"
  }
}

resource "google_compute_firewall" "between_hosts" {
  project       = var.project_id
  name          = "${var.name}-between-hosts"
  description   = "Traffic between the hosts of a slice"
  network       = google_compute_network.this.id
  direction     = "INGRESS"
  source_ranges = concat([var.subnet_cidr], values(var.regions))

  allow {
    protocol = "tcp"
  }
  allow {
    protocol = "udp"
  }
  allow {
    protocol = "icmp"
  }
}
