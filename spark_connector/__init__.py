"""What a Spark user needs: session settings, and the demo that proves them."""
