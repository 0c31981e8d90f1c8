"""From a lab's source to notebooks, and from a student's notebook to a mark.

A mark means the same for the student (`python -m grading 01`), for the instructor with a class
(`python -m grading FOLDER --out RESULTS`) and for continuous integration: there is one path.

1. `submissions` finds the notebooks of a class: whose they are, which attempt, how late.
2. `source.notebook` reads the answers in a notebook. A hole is known by the name that it defines.
   The grader does not repair a notebook: it puts the answers into its own copy of the lab.
3. `classroom` hands each notebook to a grading process. `store` keeps the results, so that equal
   answers are not graded twice.
4. `score` checks the answers. A `CheckRun` runs the checks of each exercise in the grading process,
   on names that stand for the student's work, which runs in a worker process (see
   `grading.worker`). A check that an equal answer passed is replayed.
5. `explain` says in a sentence why a check did not pass.
6. `report`, `feedback` and `lms` write what students, instructors and learning platforms read.
   `mistakes` counts known mistakes, and `similar` compares submissions.

The worker runs in a jail (`jail`). `proof` has a worker try to get out before a class is graded.
`seeds` keeps the secret seed of the random cases, and `mutants` asks how many wrong programs the
checks of a lab catch. The folder `source` makes notebooks from the texts that authors write.
"""
