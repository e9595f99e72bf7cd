from peacefs.peace.balance_plan import BalancePlan, Fill

plan = BalancePlan({"full": Fill(90, 100), "empty": Fill(10, 100)}, threshold=0.1)
assert plan.left_bytes() == 30
assert plan.targets("full", 41) == [], "nobody crosses the mean"
plan.move("full", "empty", 30)
assert plan.over() == plan.under() == []
