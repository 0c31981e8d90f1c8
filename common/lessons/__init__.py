"""A folder for each lab: what only this lab shows, trains or compares with.

In a lab's folder, `widget` is its widget, `expected` what its checks compare with (computed in
another way than the answers are), and `clinic_...` the programs that a student's test judges. Only
a check's cell imports these last two: the sandbox hides them from the student's process.
"""
