"""Producers: choice of queue, requests, retries."""
