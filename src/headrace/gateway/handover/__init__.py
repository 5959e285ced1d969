"""What is known of one request's hand-over between two engines: not a step, but what routing and forwarding both use.

`core/` are the playbooks. Routing chooses the pair (`routing/disaggregation/`), forwarding carries the playbook out.
"""
