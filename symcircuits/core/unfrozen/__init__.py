"""unfrozen"""
