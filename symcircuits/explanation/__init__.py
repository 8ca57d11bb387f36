"""explanation"""
