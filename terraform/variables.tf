variable "artifact_registry" {
  description = "Make a Docker repository that members can push to and TPU VMs can pull from."
  type        = bool
  default     = false
  nullable    = false
}

variable "budget" {
  description = "Monthly budget of this project, with e-mails to the billing account's administrators at the thresholds (shares of the amount). A budget alerts; it stops nothing."
  type = object({
    billing_account = string
    amount          = number
    currency        = optional(string)
    thresholds      = optional(list(number), [0.5, 0.9, 1.0])
  })
  default = null

  validation {
    condition     = var.budget == null || can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.budget.billing_account))
    error_message = "budget.billing_account has the form 012345-6789AB-CDEF01."
  }
  validation {
    condition     = var.budget == null || try(var.budget.amount > 0 && floor(var.budget.amount) == var.budget.amount, false)
    error_message = "budget.amount is an integer above 0, in the currency of the billing account."
  }
  validation {
    condition     = var.budget == null || try(length(var.budget.thresholds) > 0 && alltrue([for share in var.budget.thresholds : share > 0 && share <= 5]), false)
    error_message = "budget.thresholds are shares of the amount, such as 0.5 and 1.0."
  }
}

variable "bucket_names" {
  description = "Names of the two buckets; bucket names are shared by all of Google Cloud. Unset: PROJECT-NAME-data and PROJECT-NAME-runs."
  type = object({
    data = optional(string)
    runs = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition = alltrue([
      for name in [
        coalesce(var.bucket_names.data, "${replace(var.project_id, "/[.:]/", "-")}-${var.name}-data"),
        coalesce(var.bucket_names.runs, "${replace(var.project_id, "/[.:]/", "-")}-${var.name}-runs"),
      ] : can(regex("^[a-z0-9][-_a-z0-9]{1,61}[a-z0-9]$", name)) && !can(regex("^goog|google", name))
    ])
    error_message = "A bucket's name has 3 to 63 lower-case letters, digits, dashes and underscores, begins and ends with a letter or digit, and does not contain the word google."
  }
  validation {
    condition     = coalesce(var.bucket_names.data, "${replace(var.project_id, "/[.:]/", "-")}-${var.name}-data") != coalesce(var.bucket_names.runs, "${replace(var.project_id, "/[.:]/", "-")}-${var.name}-runs")
    error_message = "The two buckets need two names: TPU VMs may write to one and only read the other."
  }
}

variable "bundle_days" {
  description = "Days after which the code bundles of old runs are deleted (0: never). A run that is still active keeps its code on the hosts."
  type        = number
  default     = 180
  nullable    = false

  validation {
    condition     = var.bundle_days >= 0 && floor(var.bundle_days) == var.bundle_days
    error_message = "bundle_days is an integer, 0 or more."
  }
}

variable "delete_buckets_with_content" {
  description = "Let terraform destroy delete buckets that still hold objects: datasets, checkpoints, logs."
  type        = bool
  default     = false
  nullable    = false
}

variable "kms_key" {
  description = "Cloud KMS key that encrypts both buckets (projects/P/locations/REGION/keyRings/R/cryptoKeys/K), in the buckets' region. Cloud Storage's service account gets the right to use it. Unset: Google-managed keys."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key == null || can(regex("^projects/[^/\\s]+/locations/${var.region}/keyRings/[^/\\s]+/cryptoKeys/[^/\\s]+$", var.kms_key))
    error_message = "kms_key has the form projects/P/locations/REGION/keyRings/R/cryptoKeys/K, and its REGION is the variable region: a bucket can only use a key of its own location."
  }
}

variable "labels" {
  description = "Labels of all resources that take labels, for billing reports."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for key, value in var.labels :
      can(regex("^[a-z][-_a-z0-9]{0,62}$", key)) && can(regex("^[-_a-z0-9]{0,63}$", value))
    ])
    error_message = "Labels have lower-case letters, digits, dashes and underscores, 63 at most; keys begin with a letter."
  }
}

variable "log_days" {
  description = "Days after which the logs of workers are deleted from the runs bucket (0: never), and with them whatever a job writes below runs/ whose name ends in .log. Everything else of a run stays."
  type        = number
  default     = 365
  nullable    = false

  validation {
    condition     = var.log_days >= 0 && floor(var.log_days) == var.log_days
    error_message = "log_days is an integer, 0 or more."
  }
}

variable "members" {
  description = "Who uses tpuctl in this project: user:, group: or serviceAccount: followed by an e-mail address, or a principal:// or principalSet:// of a workload identity pool."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition = alltrue([
      for member in var.members :
      can(regex("^(user|group|serviceAccount):[^@:\\s]+@[^@:\\s]+$", member)) || can(regex("^principal(Set)?://iam\\.googleapis\\.com/.+$", member))
    ])
    error_message = "Each member is user:E-MAIL, group:E-MAIL, serviceAccount:E-MAIL or a principal of a workload identity pool. allUsers and allAuthenticatedUsers are never allowed: they are public."
  }
}

variable "mtu" {
  description = "MTU (largest packet) of the network, in bytes. Slices of several hosts exchange gradients faster with 8896."
  type        = number
  default     = 8896
  nullable    = false

  validation {
    condition     = var.mtu >= 1300 && var.mtu <= 8896 && floor(var.mtu) == var.mtu
    error_message = "mtu is 1300 to 8896."
  }
}

variable "name" {
  description = "Prefix of the names of all resources, so that two bases fit into one project."
  type        = string
  default     = "tpuctl"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{1,19}[a-z0-9]$", var.name))
    error_message = "name has 3 to 21 lower-case letters, digits and dashes, begins with a letter and does not end with a dash."
  }
}

variable "project_id" {
  description = "Project to prepare. It must exist and have a billing account."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id is the project's id (6 to 30 lower-case letters, digits and dashes), not its name or number."
  }
}

variable "protection" {
  description = "What TPU VMs may create and never overwrite or delete: records (run records, logs, code bundles), checkpoints (the same, and complete checkpoints: jobs must keep all of theirs), or nothing. Unset: records, with a warning."
  type        = string
  default     = null

  validation {
    condition     = contains(["records", "checkpoints", "nothing"], coalesce(var.protection, "records"))
    error_message = "protection is records, checkpoints or nothing."
  }
}

variable "region" {
  description = "Region of the network, the buckets and the TPUs. Reading from another region is slow and billed."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", var.region))
    error_message = "region has the form europe-west4. A multi-region such as EU is not a region."
  }
}

variable "regions" {
  description = "Other regions where TPUs may be made, each with the private IPv4 range of its subnetwork: { us-central1 = \"10.129.0.0/20\" }. Each has a Cloud NAT, which bills. The buckets stay in region: reading them from elsewhere is billed."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for region in keys(var.regions) : can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", region)) && region != var.region])
    error_message = "Each key of regions has the form us-central1, and is another region than the variable region."
  }
  validation {
    condition     = alltrue([for range in values(var.regions) : can(cidrnetmask(range)) && can(regex("^(10\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|192\\.168\\.)", range)) && try(cidrhost(range, 0) == split("/", range)[0] && tonumber(split("/", range)[1]) >= { "10" = 8, "172" = 12, "192" = 16 }[split(".", range)[0]] && tonumber(split("/", range)[1]) <= 29, false)])
    error_message = "Each range of regions is a private IPv4 range such as 10.129.0.0/20, begins at its first address, has no public addresses and is /29 or larger."
  }
  validation {
    condition = alltrue([
      for pair in setproduct(concat([var.subnet_cidr], values(var.regions)), concat([var.subnet_cidr], values(var.regions))) :
      pair[0] == pair[1] || try(cidrhost("${split("/", pair[0])[0]}/${min(tonumber(split("/", pair[0])[1]), tonumber(split("/", pair[1])[1]))}", 0) != cidrhost("${split("/", pair[1])[0]}/${min(tonumber(split("/", pair[0])[1]), tonumber(split("/", pair[1])[1]))}", 0), true)
    ]) && length(distinct(concat([var.subnet_cidr], values(var.regions)))) == length(var.regions) + 1
    error_message = "The ranges of regions and subnet_cidr overlap: each subnetwork of a network has addresses of its own."
  }
}

variable "self_delete" {
  description = "Let TPU VMs delete TPU VMs of this project, so that an abandoned VM can delete its node. Without it an idle VM bills until somebody notices."
  type        = bool
  default     = true
  nullable    = false
}

variable "soft_delete_days" {
  description = "Days for which a deleted object can be restored, and is billed: 0 (off), or 7 to 90."
  type        = number
  default     = 7
  nullable    = false

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90 && floor(var.soft_delete_days) == var.soft_delete_days)
    error_message = "soft_delete_days is 0, or 7 to 90."
  }
}

variable "ssh_ranges" {
  description = "Addresses besides IAP's that may reach port 22 of TPU VMs, such as those of a VPN: IPv4 ranges of /8 or narrower. Inside of them, use tpuctl with iap = false."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for range in var.ssh_ranges : can(cidrnetmask(range)) && try(cidrhost(range, 0) == split("/", range)[0] && tonumber(split("/", range)[1]) >= 8, false)])
    error_message = "Each of ssh_ranges is an IPv4 range such as 10.8.0.0/16, begins at its first address and is /8 or narrower: the whole internet is never allowed."
  }
  validation {
    condition = try(sum(concat([0], [
      for range in var.ssh_ranges : pow(2, 32 - tonumber(split("/", range)[1]))
      if !(can(regex("^(10\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|192\\.168\\.)", range)) && try(tonumber(split("/", range)[1]) >= { "10" = 8, "172" = 12, "192" = 16 }[split(".", range)[0]], false))
    ])) <= 65536, false)
    error_message = "All public ranges of ssh_ranges together have 65536 addresses at most (one /16): those of an office or a VPN, not a part of the internet."
  }
}

variable "subnet_cidr" {
  description = "Addresses of the TPU VMs: a private IPv4 range, one address a host."
  type        = string
  default     = "10.128.0.0/20"
  nullable    = false

  validation {
    condition     = can(cidrnetmask(var.subnet_cidr)) && can(regex("^(10\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|192\\.168\\.)", var.subnet_cidr))
    error_message = "subnet_cidr is a private IPv4 range such as 10.128.0.0/20."
  }
  validation {
    condition     = try(cidrhost(var.subnet_cidr, 0) == split("/", var.subnet_cidr)[0] && tonumber(split("/", var.subnet_cidr)[1]) >= { "10" = 8, "172" = 12, "192" = 16 }[split(".", var.subnet_cidr)[0]] && tonumber(split("/", var.subnet_cidr)[1]) <= 29, false)
    error_message = "subnet_cidr begins at the range's first address, has no public addresses, and is /29 or larger: up to /8 in 10.0.0.0/8, /12 in 172.16.0.0/12, /16 in 192.168.0.0/16."
  }
}

variable "tpu" {
  description = "One long-lived TPU VM that Terraform manages; it bills from apply to destroy. Unset: none; tpuctl up creates TPU VMs when they are needed."
  type = object({
    accelerator_type = string
    runtime_version  = string
    name             = optional(string)
    spot             = optional(bool, false)
    reserved         = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.tpu == null || can(regex("^(v[2-4]|v5p|v5litepod|v6e)-[1-9][0-9]*$", var.tpu.accelerator_type))
    error_message = "tpu.accelerator_type is a type of the Cloud TPU API, such as v3-8 or v5litepod-16."
  }
  validation {
    condition     = var.tpu == null || can(regex("^[a-z][-a-z0-9]{0,61}[a-z0-9]$", coalesce(var.tpu.name, var.name)))
    error_message = "tpu.name has lower-case letters, digits and dashes, 63 at most, and begins with a letter."
  }
  validation {
    condition     = var.tpu == null || !try(var.tpu.spot && var.tpu.reserved, false)
    error_message = "A TPU is either spot or reserved."
  }
}

variable "watch" {
  description = "Start runs again that were preempted, without a laptop: a Cloud Run job for each owner takes a step of tpuctl watch --all by a schedule (cron, UTC). owners are the accounts whose runs they are. What the job may make is decided here and not in the bucket: TPUs of these types, in these zones (unset: the variable zone), which cost at most max_price together, in US dollars an hour (unset: no limit). image holds tpuctl and is named by its digest. region is that of the job, where Cloud Run does not exist in the region of the TPUs. Unset: none."
  type = object({
    owners    = set(string)
    types     = set(string)
    zones     = optional(set(string))
    max_price = optional(number)
    image     = string
    schedule  = optional(string, "*/5 * * * *")
    region    = optional(string)
  })
  default = null

  validation {
    condition     = var.watch == null || try(length(var.watch.owners) > 0 && alltrue([for owner in var.watch.owners : can(regex("^[^@:\\s]+@[^@:\\s]+$", owner))]), false)
    error_message = "watch.owners are the e-mail addresses of accounts, as tpuctl config show names them: ada@example.com."
  }
  validation {
    condition     = var.watch == null || try(length(var.watch.types) > 0 && alltrue([for type in var.watch.types : can(regex("^(v[2-4]|v5p|v5litepod|v6e)-[1-9][0-9]*$", type))]), false)
    error_message = "watch.types are the types of TPU that the job may make, as the Cloud TPU API names them: v3-8, v5litepod-16."
  }
  validation {
    condition     = var.watch == null || try(var.watch.zones == null ? true : (length(var.watch.zones) > 0 && alltrue([for zone in var.watch.zones : can(regex("-[a-z]$", zone)) && contains(concat([var.region], keys(var.regions)), replace(zone, "/-[a-z]$/", ""))])), false)
    error_message = "watch.zones are zones of the variable region or of regions, such as europe-west4-a: other regions have no subnetwork."
  }
  validation {
    condition     = var.watch == null || try(var.watch.max_price == null ? true : var.watch.max_price >= 0.01 && var.watch.max_price < 1000000, false)
    error_message = "watch.max_price is the most that all TPUs of restarts cost together, in US dollars an hour: 0.01 or more."
  }
  validation {
    condition     = var.watch == null || try(can(regex("^[a-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}$", var.watch.image)), false)
    error_message = "watch.image is an image with tpuctl, by its digest: REGISTRY/NAME@sha256:DIGEST. What a tag such as :latest names can change, and the job makes and deletes TPUs."
  }
  validation {
    condition     = var.watch == null || try(length(split(" ", var.watch.schedule)) == 5, false)
    error_message = "watch.schedule has the five fields of cron, such as */5 * * * *."
  }
  validation {
    condition     = var.watch == null || try(var.watch.region == null || can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", var.watch.region)), false)
    error_message = "watch.region has the form europe-west4."
  }
}

variable "zone" {
  description = "Zone of the TPUs, in the region."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^${var.region}-[a-z]$", var.zone))
    error_message = "zone must be in region, such as europe-west4-a in europe-west4: buckets and network are there."
  }
}
