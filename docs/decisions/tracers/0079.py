from peacefs.peace.phases import DISKS, Phased, plan_phases

# Each keeps all disks busy for a quarter of the period, so four of them fill it when they do not meet.
units = [Phased(f"unit-{number}", 20.0, 5.0, {DISKS: 5.0}) for number in range(4)]
plan = plan_phases(units)
assert sorted(round(phase_s) for phase_s in plan.phases_s.values()) == [0, 5, 10, 15]
