"""What checks compare with: one module per lab, of expected values computed in another way.

Only a check's cell imports these modules. The sandbox hides this folder from the student's process.
"""
