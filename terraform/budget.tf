data "google_project" "this" {
  count = var.budget == null ? 0 : 1

  project_id = var.project_id
  depends_on = [google_project_service.this]
}

resource "google_billing_budget" "this" {
  count = var.budget == null ? 0 : 1

  billing_account = var.budget.billing_account
  display_name    = "${var.name} in ${var.project_id}"

  budget_filter {
    # The API stores the project's number; with its id every plan would show a change.
    projects        = ["projects/${data.google_project.this[0].number}"]
    calendar_period = "MONTH"
  }

  amount {
    specified_amount {
      units         = tostring(var.budget.amount)
      currency_code = var.budget.currency
    }
  }

  dynamic "threshold_rules" {
    for_each = var.budget.thresholds

    content {
      threshold_percent = threshold_rules.value
      spend_basis       = "CURRENT_SPEND"
    }
  }

  depends_on = [google_project_service.this]
}
