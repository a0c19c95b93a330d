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

resource "google_compute_firewall" "between_hosts" {
  project       = var.project_id
  name          = "${var.name}-between-hosts"
  description   = "Traffic between the hosts of a slice"
  network       = google_compute_network.this.id
  direction     = "INGRESS"
  source_ranges = [var.subnet_cidr]

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
