from peacefs.peace.phases import DISKS, Phased, overload, plan_phases

# Each keeps all disks busy for a quarter of the period, so four of them fill it when they do not meet.
units = [Phased(f"unit-{number}", 20.0, 5.0, {DISKS: 5.0}) for number in range(4)]
plan = plan_phases(units)
assert sorted(round(phase_s) for phase_s in plan.phases_s.values()) in ([0, 5, 10, 15],)
assert overload(units, plan.phases_s) < overload(units, dict.fromkeys(plan.phases_s, 0.0)) / 3.9
